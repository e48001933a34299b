//! A private folder for copies that only this process needs, such as the history of a repository. It is removed when the
//! process is done with it, or by the next process if this one was killed.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::RalphHome;
use crate::error::Error;

const LOCK_EXTENSION: &str = "lock";

/// A folder that exists as long as this value.
#[derive(Debug)]
pub(crate) struct ScratchFolder {
    path: PathBuf,
    /// Held until the folder is removed: an unlocked one belongs to nobody.
    _lock: File,
}

impl ScratchFolder {
    /// Makes a new folder, and removes those of processes that are gone.
    pub(crate) fn create(home: &RalphHome) -> Result<Self, Error> {
        let dir = home.state_dir().join("scratch");
        let failed = |source: io::Error| Error::File { doing: "make a folder in", path: dir.clone(), source };
        DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(failed)?;
        remove_abandoned(&dir);
        let mut random = [0_u8; 8];
        getrandom::fill(&mut random).map_err(|_| Error::Random)?;
        let path = dir.join(ralph_core::hash::hex(&random));
        // Locked before the folder exists, so that no other process takes it for an abandoned one.
        let lock = loop {
            let lock_path = path.with_extension(LOCK_EXTENSION);
            let lock = File::options().write(true).create(true).truncate(false).open(&lock_path).map_err(failed)?;
            flock(&lock, FlockOperation::LockExclusive).map_err(|errno| failed(errno.into()))?;
            if is_still_at(&lock, &lock_path) {
                break lock;
            }
        };
        DirBuilder::new().mode(0o700).create(&path).map_err(failed)?;
        Ok(Self { path, _lock: lock })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ScratchFolder {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Another process may have removed the file before it was locked here.
fn is_still_at(file: &File, path: &Path) -> bool {
    let same = |a: &fs::Metadata, b: &fs::Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
    matches!((file.metadata(), fs::metadata(path)), (Ok(file), Ok(path)) if same(&file, &path))
}

fn remove_abandoned(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let lock_path = entry.path();
        if lock_path.extension().is_none_or(|end| end != LOCK_EXTENSION) {
            continue;
        }
        let Ok(lock) = File::open(&lock_path) else { continue };
        let is_free = flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
        if is_free && is_still_at(&lock, &lock_path) {
            remove(&lock_path.with_extension(""));
        }
    }
}

/// Removes a folder and its lock; what cannot be removed is left to the next process.
fn remove(path: &Path) {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(%error, path = %path.display(), "a copy could not be removed");
        }
        _ => drop(fs::remove_file(path.with_extension(LOCK_EXTENSION))),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn folders_are_private_and_do_not_outlive_their_process() {
        let state = tempfile::tempdir().unwrap();
        let home = RalphHome::new(state.path(), state.path());
        let dir = state.path().join("scratch");
        let names = || {
            let mut names: Vec<String> =
                fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
            names.sort();
            names
        };
        let first = ScratchFolder::create(&home).unwrap();
        fs::write(first.path().join("history"), "private").unwrap();
        for path in [dir.as_path(), first.path()] {
            assert_eq!(fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o700);
        }
        // As a killed process leaves it: a folder and a lock that nobody holds.
        fs::create_dir(dir.join("dead")).unwrap();
        fs::write(dir.join("dead/history"), "private").unwrap();
        fs::write(dir.join("dead.lock"), "").unwrap();
        let second = ScratchFolder::create(&home).unwrap();
        assert!(first.path().join("history").exists(), "in use");
        assert!(!dir.join("dead").exists() && !dir.join("dead.lock").exists(), "{:?}", names());
        drop((first, second));
        assert_eq!(names(), Vec::<String>::new());
    }
}
