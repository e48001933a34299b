//! Locks an image, so that only one process at a time unpacks or removes it.
//!
//! The lock is a file next to the image. It exists only while a process holds it, or after a process was killed while
//! holding it. The kernel releases the lock when its holder dies; the next process then takes over the file, or a
//! sweep removes it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::ImageError;

#[derive(Debug)]
pub(super) struct ImageLock {
    /// Kept open: closing it releases the lock.
    _file: File,
    path: PathBuf,
}

impl ImageLock {
    /// Waits until this process holds the lock.
    pub(super) fn wait(path: &Path) -> Result<Self, ImageError> {
        loop {
            if let Some(lock) = Self::acquire(path, FlockOperation::LockExclusive)? {
                return Ok(lock);
            }
        }
    }

    /// Takes the lock if it is free.
    pub(super) fn attempt(path: &Path) -> Result<Option<Self>, ImageError> {
        Self::acquire(path, FlockOperation::NonBlockingLockExclusive)
    }

    fn acquire(path: &Path, how: FlockOperation) -> Result<Option<Self>, ImageError> {
        let failed = |source: io::Error| ImageError::Store { doing: "lock", path: path.to_owned(), source };
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path).map_err(failed)?;
        loop {
            match flock(&file, how) {
                Ok(()) => break,
                Err(Errno::INTR) => (),
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(errno) => return Err(failed(errno.into())),
            }
        }
        // The previous holder removes the file; by then other processes may already wait for a new one.
        let ours = file.metadata().map_err(failed)?;
        match fs::symlink_metadata(path) {
            Ok(there) if (there.dev(), there.ino()) == (ours.dev(), ours.ino()) => {
                Ok(Some(Self { _file: file, path: path.to_owned() }))
            }
            Ok(_) => Ok(None),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }
}

impl Drop for ImageLock {
    fn drop(&mut self) {
        // Removed while the lock is still held, so no other process can get in between; a leftover file does no harm.
        let _ = fs::remove_file(&self.path);
    }
}
