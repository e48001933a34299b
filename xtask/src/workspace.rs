//! Locates the project on disk, reads its files, and detects CI.

use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::Context as _;

use crate::subprocess;

#[derive(Debug, Clone)]
pub(crate) struct ProjectWorkspace {
    pub root: PathBuf,
    pub environment: BuildEnvironment,
}

/// Whether this is CI, where nothing may be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BuildEnvironment {
    Ci,
    Local,
}

impl ProjectWorkspace {
    pub(crate) fn locate() -> Self {
        let own = Path::new(env!("CARGO_MANIFEST_DIR"));
        let root = own.parent().expect("xtask lies in a folder of the project").to_owned();
        let ci = env::var("CI").is_ok_and(|value| !value.is_empty() && value != "false" && value != "0");
        Self { root, environment: if ci { BuildEnvironment::Ci } else { BuildEnvironment::Local } }
    }

    /// Returns the text of a file of the project.
    pub(crate) fn read(&self, path: &str) -> anyhow::Result<String> {
        fs::read_to_string(self.root.join(path)).with_context(|| format!("could not read `{path}`"))
    }

    /// Returns every file that is tracked or could be, sorted, with `/` between folders.
    pub(crate) fn files(&self) -> anyhow::Result<Vec<String>> {
        let mut git = subprocess::command("git", &self.root);
        git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
        let listed = subprocess::output(&mut git)?;
        let mut files: Vec<String> = listed
            .split('\0')
            .filter(|path| !path.is_empty() && self.root.join(path).is_file())
            .map(str::to_owned)
            .collect();
        files.sort();
        files.dedup();
        Ok(files)
    }
}
