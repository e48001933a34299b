//! One run's folder: its event file, lock, artefacts and the copies nothing inside a sandbox can touch.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use ralph_core::run::{BadHistory, RunListing, RunState};

use super::event_log::fold;
use super::summary_file;
use crate::error::{Error, file_error};

/// The folder of one run.
#[derive(Debug, Clone)]
pub struct RunFolder {
    path: PathBuf,
}

impl RunFolder {
    pub fn at(path: PathBuf) -> Self {
        Self { path }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the run's id, which is the folder's name.
    pub fn id(&self) -> String {
        self.path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
    }

    pub fn events_path(&self) -> PathBuf {
        self.path.join("events.jsonl")
    }

    /// What lists show of the run, for as long as its events do not grow.
    pub fn summary_path(&self) -> PathBuf {
        self.path.join("summary.json")
    }

    pub fn bare_path(&self) -> PathBuf {
        self.path.join("repo.git")
    }

    /// The task file as it was read at the start; it is what counts.
    pub fn task_path(&self) -> PathBuf {
        self.path.join("task.md")
    }

    /// The text of the task in a later revision; the first is [`RunFolder::task_path`].
    pub fn task_revision(&self, revision: u32) -> PathBuf {
        if revision <= 1 { self.task_path() } else { self.path.join(format!("task-{revision}.md")) }
    }

    /// What diagnoses have proposed.
    pub fn proposals_path(&self) -> PathBuf {
        self.path.join("proposals.json")
    }

    pub fn socket_path(&self) -> PathBuf {
        self.path.join("control.sock")
    }

    pub fn receipt_path(&self) -> PathBuf {
        self.path.join("receipt.json")
    }

    pub fn pull_request_path(&self) -> PathBuf {
        self.path.join("pull-request.md")
    }

    pub fn log_path(&self) -> PathBuf {
        self.path.join("engine.log")
    }

    /// The mirror of an iteration's artefacts.
    pub fn iteration(&self, n: u32) -> PathBuf {
        self.path.join("iterations").join(n.to_string())
    }

    /// The mirror of a `.ralph` file.
    pub fn mirror(&self, name: &str) -> PathBuf {
        self.path.join("state").join(name)
    }

    /// Folds the run's events.
    pub fn state(&self) -> Result<RunState, Error> {
        let run = self.id();
        let folded = fold(&self.events_path(), &run)?;
        folded.map(|(state, _)| state).ok_or(Error::BadHistory { run, source: BadHistory::Empty })
    }

    /// Returns what a list shows of the run, without folding its events where its summary is current.
    pub fn listing(&self) -> Result<RunListing, Error> {
        summary_file::read_current(self).map_or_else(|| summary_file::refresh(self), Ok)
    }

    /// Tells whether the first event is in the file, whole: before that, there is no run. A file that cannot be read
    /// counts as one, so that its trouble is told and not hidden.
    pub fn begun(&self) -> bool {
        let mut events = match File::open(self.events_path()) {
            Ok(events) => events,
            Err(error) => return error.kind() != std::io::ErrorKind::NotFound,
        };
        let mut buffer = [0_u8; 8 << 10];
        loop {
            match std::io::Read::read(&mut events, &mut buffer) {
                Ok(0) => return false,
                Ok(read) if !buffer.iter().take(read).any(|byte| *byte == b'\n') => (),
                Ok(_) | Err(_) => return true,
            }
        }
    }

    /// Takes the run's lock; the file descriptor holds it until it is dropped or the process dies.
    pub fn lock(&self) -> Result<File, Error> {
        let path = self.path.join("lock");
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(file_error("open the lock", &path))?;
        match lock.try_lock() {
            Ok(()) => Ok(lock),
            Err(fs::TryLockError::WouldBlock) => Err(Error::Locked { run: self.id() }),
            Err(fs::TryLockError::Error(error)) => Err(file_error("lock", &path)(error)),
        }
    }

    /// Tells whether a process works on the run now.
    pub fn is_locked(&self) -> bool {
        matches!(self.lock(), Err(Error::Locked { .. }))
    }

    pub fn read(&self, path: &Path) -> Result<Option<Vec<u8>>, Error> {
        match fs::read(path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(file_error("read", path)(error)),
        }
    }
}

/// Writes a file whole or not at all, making its folder when missing; when this returns, it outlives a power cut.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let temporary = write_temporary(path, bytes, File::sync_data)?;
    fs::rename(&temporary, path).map_err(file_error("replace", path))
}

/// Writes a file whole or not at all, and leaves it to the system when it reaches the disk: for what a run only keeps to
/// be looked at. A killed process loses nothing of it, a power cut may.
pub fn write_unflushed(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let temporary = write_temporary(path, bytes, |_| Ok(()))?;
    fs::rename(&temporary, path).map_err(file_error("replace", path))
}

fn write_temporary(path: &Path, bytes: &[u8], flush: fn(&File) -> std::io::Result<()>) -> Result<PathBuf, Error> {
    let dir = path.parent().unwrap_or(Path::new("."));
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let temporary = dir.join(name);
    let created = match File::create(&temporary) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            fs::create_dir_all(dir).map_err(file_error("make the folder", dir))?;
            File::create(&temporary)
        }
        created => created,
    };
    let mut new = created.map_err(file_error("create", &temporary))?;
    new.write_all(bytes).map_err(file_error("write", &temporary))?;
    flush(&new).map_err(file_error("flush", &temporary))?;
    Ok(temporary)
}
