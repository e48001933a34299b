//! Reads and records which versions of a project's files the user trusts.

use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::path::PathBuf;

use ralph_core::profile::TrustedFiles;

use super::SetupError;
use crate::store::RalphHome;

/// Returns the file of trusted versions, whether or not it exists.
pub fn trust_file(home: &RalphHome) -> PathBuf {
    home.config_dir().join("trusted")
}

/// Returns the versions the user trusts; none if the file cannot be read.
pub fn trusted_files(home: &RalphHome) -> TrustedFiles {
    let text = std::fs::read_to_string(trust_file(home)).unwrap_or_default();
    let sha256: BTreeSet<String> =
        text.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect();
    TrustedFiles { sha256 }
}

/// Records that the user trusts a file as long as it has this hash. The path is for readers only.
pub fn record_trust(home: &RalphHome, sha256: &str, path: &str) -> Result<(), SetupError> {
    let file = trust_file(home);
    let failed = |source: io::Error| SetupError::TrustFile { path: file.clone(), source };
    std::fs::create_dir_all(home.config_dir()).map_err(failed)?;
    let mut out = std::fs::File::options().append(true).create(true).open(&file).map_err(failed)?;
    writeln!(out, "{sha256}  {path}").map_err(failed)
}
