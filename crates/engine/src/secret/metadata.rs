//! Stores what is known about each secret besides its value: `<state folder>/secrets.json`.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use ralph_core::secret::SecretKind;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::error::{Error, file};
use super::private_files;
use crate::store::RalphHome;

/// The version of the file.
const FORMAT: u32 = 1;
const MAX_BYTES: usize = 4 << 20;

/// Where a secret was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SecretSource {
    Keyring,
    File,
    /// A `cmd://` line in a secret file.
    Command,
    Environment,
    /// The `.env` of the working directory.
    DotEnv,
}

impl SecretSource {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Keyring => "keyring",
            Self::File => "file",
            Self::Command => "command",
            Self::Environment => "environment",
            Self::DotEnv => "dot-env",
        }
    }
}

/// The metadata of one secret. Fields of a newer ralph are kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecretMetadata {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<SecretKind>,
    /// Where ralph stored it; `None` for one it only used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<SecretSource>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub set_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_used: Option<Timestamp>,
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct SecretMetadataDoc {
    format: u32,
    #[serde(default)]
    secrets: BTreeMap<String, SecretMetadata>,
    #[serde(flatten)]
    more: Map<String, Value>,
}

/// Reads and updates the metadata file.
#[derive(Debug, Clone)]
pub(super) struct SecretMetadataFile {
    path: PathBuf,
}

impl SecretMetadataFile {
    pub(super) fn new(home: &RalphHome) -> Self {
        Self { path: home.state_dir().join("secrets.json") }
    }

    pub(super) fn read(&self) -> Result<BTreeMap<String, SecretMetadata>, Error> {
        Ok(self.load()?.secrets)
    }

    pub(super) fn entry(&self, name: &str) -> Result<SecretMetadata, Error> {
        Ok(self.read()?.remove(name).unwrap_or_default())
    }

    /// Changes the file under a lock, so that two processes lose none of each other's changes.
    pub(super) fn update(&self, change: impl FnOnce(&mut BTreeMap<String, SecretMetadata>)) -> Result<(), Error> {
        let dir = self.path.parent().unwrap_or(Path::new("."));
        std::fs::create_dir_all(dir).map_err(file("make the folder", dir))?;
        let path = self.path.with_extension("lock");
        let lock = File::options().create(true).truncate(false).write(true).open(&path);
        let lock = lock.map_err(file("open the lock", &path))?;
        lock.lock().map_err(file("lock", &path))?;
        let mut whole = self.load()?;
        change(&mut whole.secrets);
        whole.format = FORMAT;
        let text = serde_json::to_vec_pretty(&whole).expect("names and times serialise");
        private_files::write(&self.path, &text)
    }

    fn load(&self) -> Result<SecretMetadataDoc, Error> {
        let Some(bytes) = private_files::read(&self.path, MAX_BYTES)? else { return Ok(SecretMetadataDoc::default()) };
        let damaged = |source| Error::Damaged { path: self.path.clone(), source };
        let whole: SecretMetadataDoc = serde_json::from_slice(&bytes).map_err(damaged)?;
        if whole.format > FORMAT {
            return Err(Error::Newer { path: self.path.clone() });
        }
        Ok(whole)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_file_stays_private_and_keeps_unknown_fields() {
        let dir = tempfile::tempdir().unwrap();
        let file = SecretMetadataFile::new(&RalphHome::new(dir.path(), dir.path()));
        assert_eq!(file.read().unwrap(), BTreeMap::new());
        let path = dir.path().join("secrets.json");
        fs::write(&path, r#"{"format":1,"tomorrow":true,"secrets":{"A":{"kind":"oauth","colour":"red"}}}"#).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        file.update(|secrets| secrets.entry("B".to_owned()).or_default().kind = Some(SecretKind::ApiKey)).unwrap();
        let text = fs::read_to_string(&path).unwrap();
        let value: Value = serde_json::from_str(&text).unwrap();
        let want = serde_json::json!({"format": 1, "tomorrow": true,
            "secrets": {"A": {"kind": "oauth", "colour": "red"}, "B": {"kind": "api-key"}}});
        assert_eq!(value, want);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn unreadable_files_are_reported() {
        for (text, want) in [("{", "is damaged"), (r#"{"format":2}"#, "was written by a newer ralph")] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("secrets.json");
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            let error = SecretMetadataFile::new(&RalphHome::new(dir.path(), dir.path())).read().unwrap_err();
            assert_eq!(error.to_string(), format!("`{}` {want}", path.display()));
        }
    }
}
