//! Stores secrets in files: `<config folder>/secrets/NAME`, one value each, readable by the user only.

use std::path::{Path, PathBuf};

use ralph_core::secret::{LONGEST, Secret, SecretName, read};

use super::error::{Error, file};
use super::private_files;
use crate::store::RalphHome;

/// The folder of secret files.
#[derive(Debug, Clone)]
pub(super) struct SecretFiles {
    folder: PathBuf,
}

impl SecretFiles {
    pub(super) fn new(home: &RalphHome) -> Self {
        Self { folder: home.config_dir().join("secrets") }
    }

    pub(super) fn path(&self, name: &SecretName) -> PathBuf {
        self.folder.join(name.as_str())
    }

    /// Reads the content of a file: a value, or a `cmd://` line.
    pub(super) fn read(&self, name: &SecretName) -> Result<Option<Secret>, Error> {
        private_files::check_folder(&self.folder)?;
        let path = self.path(name);
        let Some(bytes) = private_files::read(&path, LONGEST)? else { return Ok(None) };
        let unreadable = |why: String| Error::Unreadable { path: path.clone(), why, name: name.to_string() };
        let text = std::str::from_utf8(&bytes).map_err(|_| unreadable("it is not UTF-8".to_owned()))?;
        read(text).map(Some).map_err(|error| unreadable(error.to_string()))
    }

    pub(super) fn write(&self, name: &SecretName, secret: &Secret) -> Result<(), Error> {
        private_files::ensure_folder(&self.folder)?;
        private_files::write(&self.path(name), format!("{}\n", secret.expose()).as_bytes())
    }

    /// Removes a file; returns whether there was one.
    pub(super) fn remove(&self, name: &SecretName) -> Result<bool, Error> {
        private_files::remove(&self.path(name))
    }

    /// Returns the names that have files, sorted. Files with other names are not ralph's.
    pub(super) fn names(&self) -> Result<Vec<SecretName>, Error> {
        let mut names: Vec<SecretName> =
            entries(&self.folder)?.iter().filter_map(|name| SecretName::parse(name).ok()).collect();
        names.sort();
        Ok(names)
    }
}

fn entries(folder: &Path) -> Result<Vec<String>, Error> {
    let entries = match std::fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(file("read", folder)(error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(file("read", folder))?;
        names.extend(entry.file_name().into_string());
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn name() -> SecretName {
        SecretName::parse("MY_KEY").unwrap()
    }

    struct SecretFilesFixture {
        files: SecretFiles,
        dir: tempfile::TempDir,
    }

    fn fixture() -> SecretFilesFixture {
        let dir = tempfile::tempdir().unwrap();
        SecretFilesFixture {
            files: SecretFiles::new(&RalphHome::new(dir.path().join("state"), dir.path().join("config"))),
            dir,
        }
    }

    #[test]
    fn files_are_private_to_the_owner() {
        let SecretFilesFixture { files, dir } = fixture();
        assert_eq!(files.read(&name()).unwrap(), None);
        assert_eq!(files.names().unwrap(), []);
        files.write(&name(), &Secret::new("one")).unwrap();
        files.write(&name(), &Secret::new("two")).unwrap();
        assert_eq!(files.read(&name()).unwrap(), Some(Secret::new("two")));
        assert_eq!(files.names().unwrap(), [name()]);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&dir.path().join("config/secrets")), mode(&files.path(&name()))), (0o700, 0o600));
        assert!(files.remove(&name()).unwrap());
        assert!(!files.remove(&name()).unwrap());
    }

    #[track_caller]
    fn check_refused(spoil: impl FnOnce(&Path), why: &str, remedy: &str) {
        let SecretFilesFixture { files, dir } = fixture();
        files.write(&name(), &Secret::new("value-of-it")).unwrap();
        let root = dir.path().to_str().unwrap().to_owned();
        spoil(&files.path(&name()));
        let error = files.read(&name()).unwrap_err();
        let shown = (error.to_string().replace(&root, "DIR"), error.hint().unwrap_or_default().replace(&root, "DIR"));
        assert_eq!(shown, (why.to_owned(), remedy.to_owned()));
    }

    #[test]
    fn files_that_are_not_private_are_refused() {
        let chmod = |path: &Path, mode| fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        check_refused(
            |path| chmod(path, 0o644),
            "`DIR/config/secrets/MY_KEY` is not private: others can read or change it",
            "chmod 600 DIR/config/secrets/MY_KEY",
        );
        check_refused(
            |path| chmod(path, 0o620),
            "`DIR/config/secrets/MY_KEY` is not private: others can read or change it",
            "chmod 600 DIR/config/secrets/MY_KEY",
        );
        check_refused(
            |path| chmod(path.parent().unwrap(), 0o755),
            "`DIR/config/secrets` is not private: others can read or change it",
            "chmod 700 DIR/config/secrets",
        );
        check_refused(
            |path| {
                fs::rename(path, path.with_extension("real")).unwrap();
                symlink(path.with_extension("real"), path).unwrap();
            },
            "`DIR/config/secrets/MY_KEY` is not private: it is a link",
            "rm DIR/config/secrets/MY_KEY",
        );
        check_refused(
            |path| {
                let folder = path.parent().unwrap();
                fs::rename(folder, folder.with_extension("real")).unwrap();
                symlink(folder.with_extension("real"), folder).unwrap();
            },
            "`DIR/config/secrets` is not private: it is a link or a file, and a folder is needed",
            "rm DIR/config/secrets",
        );
        check_refused(
            |path| {
                fs::remove_file(path).unwrap();
                fs::create_dir(path).unwrap();
            },
            "`DIR/config/secrets/MY_KEY` is not private: it is not a plain file",
            "rm -r DIR/config/secrets/MY_KEY",
        );
        check_refused(
            |path| fs::write(path, "two words").unwrap(),
            "`DIR/config/secrets/MY_KEY` holds no text that could be a secret: it contains whitespace or control characters",
            "ralph secret set MY_KEY",
        );
    }

    #[test]
    fn a_pipe_does_not_hang() {
        let SecretFilesFixture { files, dir: _dir } = fixture();
        files.write(&name(), &Secret::new("one")).unwrap();
        files.remove(&name()).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, files.path(&name()), rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
        assert!(matches!(files.read(&name()), Err(Error::NotPrivate { .. })));
    }
}
