//! Reads and writes `meta.json`, the description in a sandbox's folder. Does not decide who may read it.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use ralph_core::config::ToolchainSelection;
use serde::{Deserialize, Serialize};

use crate::files::{self, RootDir};
use crate::{Error, HostLayer, SandboxLimits, SandboxNetwork, SandboxSpec, SandboxSummary, random_name};

pub(crate) const META_FILE: &str = "meta.json";
const META_FORMAT: u64 = 1;
const MAX_META_BYTES: u64 = 4 << 20;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SandboxMeta {
    pub(crate) format: u64,
    pub(crate) id: String,
    /// Distinguishes this sandbox's processes from those of another sandbox with the same name.
    pub(crate) key: String,
    pub(crate) fingerprint: String,
    pub(crate) image: Option<String>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) env: BTreeMap<String, String>,
    #[serde(default)]
    pub(crate) resources: SandboxLimits,
    #[serde(default)]
    pub(crate) network: SandboxNetwork,
    #[serde(default)]
    pub(crate) toolchains: ToolchainSelection,
    /// The host layers that are visible in addition to the toolchains.
    #[serde(default)]
    pub(crate) shown: Vec<HostLayer>,
    /// The snapshots this sandbox is based on, the nearest first.
    #[serde(default)]
    pub(crate) layers: Vec<String>,
}

#[derive(Deserialize)]
struct SandboxMetaFormat {
    format: u64,
}

impl SandboxMeta {
    pub(crate) fn new(spec: &SandboxSpec) -> Self {
        Self {
            format: META_FORMAT,
            id: spec.name.clone(),
            key: random_name::random(),
            fingerprint: spec.fingerprint(),
            image: spec.image.clone(),
            labels: spec.labels.clone(),
            env: spec.env.clone(),
            resources: spec.resources,
            network: spec.network,
            toolchains: spec.toolchains.clone(),
            shown: spec.layers.clone(),
            layers: Vec::new(),
        }
    }

    /// Writes the description into a new folder that is not visible to others yet.
    pub(crate) fn write_new(&self, folder: &Path) -> Result<(), Error> {
        let path = folder.join(META_FILE);
        let bytes = serde_json::to_vec_pretty(self).expect("strings serialise");
        let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        file.and_then(|mut file| file.write_all(&bytes)).map_err(super::host_error("write", &path))
    }

    /// Replaces the description of a sandbox; only that of a cage changes after it was made.
    #[cfg(target_os = "linux")]
    pub(crate) fn write(&self, root: &RootDir) -> Result<(), Error> {
        let bytes = serde_json::to_vec_pretty(self).expect("strings serialise");
        files::replace(root, Path::new(META_FILE), &bytes, Some(0o600))
    }

    /// Reads the description of the sandbox in `folder`; a folder without one is not a sandbox.
    pub(crate) fn read(id: &str, folder: &Path) -> Result<Self, Error> {
        let gone = || Error::Gone { id: id.to_owned() };
        let root = match RootDir::open(id, folder) {
            Err(Error::Host { source, .. })
                if matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
            {
                return Err(gone());
            }
            root => root?,
        };
        let bytes = match files::read(&root, Path::new(META_FILE), MAX_META_BYTES) {
            Err(Error::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Err(gone()),
            bytes => bytes?,
        };
        let path = folder.join(META_FILE);
        // The format number is read first: a newer format may have nothing else in common with ours.
        let SandboxMetaFormat { format } = parse(&bytes, &path)?;
        if format != META_FORMAT {
            return Err(Error::Format { path, found: format, known: META_FORMAT });
        }
        let meta: Self = parse(&bytes, &path)?;
        if meta.id != id {
            return Err(Error::Refused { path, why: "it describes a sandbox of another name" });
        }
        Ok(meta)
    }

    pub(crate) fn into_summary(self) -> SandboxSummary {
        SandboxSummary { id: self.id, labels: self.labels, fingerprint: self.fingerprint, bytes: None }
    }
}

fn parse<'a, T: Deserialize<'a>>(bytes: &'a [u8], path: &Path) -> Result<T, Error> {
    let failed = |source: serde_json::Error| Error::Host {
        doing: "parse",
        path: PathBuf::from(path),
        source: io::Error::new(io::ErrorKind::InvalidData, source),
    };
    serde_json::from_slice(bytes).map_err(failed)
}

/// Checks that a name is one plain folder name that other backends would accept too.
pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let start = name.starts_with(|c: char| c.is_ascii_alphanumeric());
    if start && name.len() <= 63 && name.chars().all(plain) {
        Ok(())
    } else {
        Err(Error::Name { name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[track_caller]
    fn check(name: &str, want: bool) {
        assert_eq!(check_name(name).is_ok(), want, "{name:?}");
    }

    #[test]
    fn names() {
        check("agent-loop-claude-ralph.t1_fix", true);
        check("7", true);
        check(&"x".repeat(63), true);
        check(&"x".repeat(64), false);
        for name in ["", ".", "..", ".new-1", "-rf", "a/b", "a\0", "a b", "ä", "a\n"] {
            check(name, false);
        }
    }

    #[track_caller]
    fn read(text: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(META_FILE), text).unwrap();
        let error = SandboxMeta::read("a", folder.path()).unwrap_err();
        error.to_string().replace(folder.path().to_str().unwrap(), "DIR")
    }

    #[test]
    fn invalid_descriptions_are_refused() {
        assert_eq!(
            read(r#"{"format":2,"new":1}"#),
            "`DIR/meta.json` is written in format 2; this ralph knows formats up to 1"
        );
        assert_eq!(read("{"), "could not parse the sandbox folder `DIR/meta.json`");
        assert_eq!(read(r#"{"format":1}"#), "could not parse the sandbox folder `DIR/meta.json`");
        assert_eq!(
            read(r#"{"format":1,"id":"b","key":"k","fingerprint":"","image":null,"labels":{},"env":{}}"#),
            "refused `DIR/meta.json`: it describes a sandbox of another name"
        );
    }

    #[test]
    fn format_one_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let text = r#"{"format":1,"id":"a","key":"k","fingerprint":"f","image":null,"labels":{"ralph.run":"r"},"env":{"A":"1"},"later":true}"#;
        fs::write(folder.path().join(META_FILE), text).unwrap();
        let want = SandboxMeta {
            format: 1,
            id: "a".into(),
            key: "k".into(),
            fingerprint: "f".into(),
            image: None,
            labels: [("ralph.run".into(), "r".into())].into(),
            env: [("A".into(), "1".into())].into(),
            resources: SandboxLimits::default(),
            network: SandboxNetwork::default(),
            toolchains: ToolchainSelection::default(),
            shown: Vec::new(),
            layers: Vec::new(),
        };
        assert_eq!(SandboxMeta::read("a", folder.path()).unwrap(), want);
    }
}
