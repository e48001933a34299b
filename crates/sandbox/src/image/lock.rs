//! One image is unpacked or removed by one process at a time.
//!
//! The lock is a file beside the image, and exists only while somebody holds it or was killed holding it. The kernel
//! gives the lock back when its holder dies; the file is then taken over by the next one or swept.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::ImageError;

#[derive(Debug)]
pub(super) struct ImageLock {
    /// Held open: closing it is what gives the lock back.
    _file: File,
    path: PathBuf,
}

impl ImageLock {
    /// Waits until the lock is ours.
    pub(super) fn wait(path: &Path) -> Result<Self, ImageError> {
        loop {
            if let Some(lock) = Self::acquire(path, FlockOperation::LockExclusive)? {
                return Ok(lock);
            }
        }
    }

    /// Takes the lock if nobody has it.
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
        // The holder before us removes the file; then others are already waiting at a new one.
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
        // While we still hold it, so nobody can be in between; a file that stays is only untidy.
        let _ = fs::remove_file(&self.path);
    }
}
