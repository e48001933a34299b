//! Gives access to one run's folder: its event file, lock, artefacts and copies that no sandbox can change.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ralph_core::run::{BadHistory, RunListing, RunState};

use super::event_log::fold;
use super::{liveness, summary_file};
use crate::error::{Error, file_error};

/// How long another process may hold the lock without listening on the control socket.
const HANDOVER_TIMEOUT: Duration = Duration::from_secs(1);

/// How often taking the lock is retried meanwhile.
const HANDOVER_INTERVAL: Duration = Duration::from_millis(5);

/// The lock of a run, held by this process.
#[derive(Debug)]
pub struct RunLock(File);

impl Drop for RunLock {
    fn drop(&mut self) {
        // Unlocked explicitly: closing is not enough while a program that is just being started holds a copy of the
        // descriptor.
        let _ = self.0.unlock();
    }
}

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

    /// Returns the path of the summary for lists, valid while the events do not grow.
    pub fn summary_path(&self) -> PathBuf {
        self.path.join("summary.json")
    }

    pub fn bare_path(&self) -> PathBuf {
        self.path.join("repo.git")
    }

    /// Returns the path of the task file as read at the start, which is the authoritative copy.
    pub fn task_path(&self) -> PathBuf {
        self.path.join("task.md")
    }

    /// Returns the path of a later revision of the task; the first is [`RunFolder::task_path`].
    pub fn task_revision(&self, revision: u32) -> PathBuf {
        if revision <= 1 { self.task_path() } else { self.path.join(format!("task-{revision}.md")) }
    }

    /// Returns the path of the proposals of diagnoses.
    pub fn proposals_path(&self) -> PathBuf {
        self.path.join("proposals.json")
    }

    pub fn socket_path(&self) -> PathBuf {
        self.path.join("control.sock")
    }

    pub fn receipt_path(&self) -> PathBuf {
        self.path.join("receipt.json")
    }

    /// What every check used of the start commit, by command.
    pub fn observed_path(&self) -> PathBuf {
        self.path.join("observed.json")
    }

    pub fn pull_request_path(&self) -> PathBuf {
        self.path.join("pull-request.md")
    }

    pub fn log_path(&self) -> PathBuf {
        self.path.join("engine.log")
    }

    /// Returns the mirror of an iteration's artefacts.
    pub fn iteration(&self, n: u32) -> PathBuf {
        self.path.join("iterations").join(n.to_string())
    }

    /// Returns the mirror of a `.ralph` file.
    pub fn mirror(&self, name: &str) -> PathBuf {
        self.path.join("state").join(name)
    }

    /// Folds the run's events.
    pub fn state(&self) -> Result<RunState, Error> {
        let run = self.id();
        let folded = fold(&self.events_path(), &run)?;
        folded.map(|(state, _)| state).ok_or(Error::BadHistory { run, source: BadHistory::Empty })
    }

    /// Returns the run's entry for lists, without folding its events if its summary is current.
    pub fn listing(&self) -> Result<RunListing, Error> {
        summary_file::read_current(self).map_or_else(|| summary_file::refresh(self), Ok)
    }

    /// Reports whether the first event is in the file, whole: before that, there is no run. A file that cannot be read
    /// counts as begun, so that the error is reported and not hidden.
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

    /// Takes the run's lock; the value holds it until it is dropped or the process dies.
    pub fn lock(&self) -> Result<RunLock, Error> {
        let path = self.path.join("lock");
        let lock = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(&path)
            .map_err(file_error("open the lock", &path))?;
        let deadline = Instant::now() + HANDOVER_TIMEOUT;
        loop {
            match lock.try_lock() {
                Ok(()) => return Ok(RunLock(lock)),
                // A process that holds the lock and does not listen is about to listen or about to release it.
                Err(fs::TryLockError::WouldBlock) if !self.is_live() && Instant::now() < deadline => {
                    std::thread::sleep(HANDOVER_INTERVAL);
                }
                Err(fs::TryLockError::WouldBlock) => return Err(Error::Locked { run: self.id() }),
                Err(fs::TryLockError::Error(error)) => return Err(file_error("lock", &path)(error)),
            }
        }
    }

    /// Reports whether a process holds the run, by its lock: for what must not happen to a run that is held, such as
    /// removing its sandbox.
    pub fn is_held(&self) -> bool {
        self.is_live() || matches!(self.lock(), Err(Error::Locked { .. }))
    }

    /// Reports whether a process works on the run now, without touching its lock.
    pub fn is_live(&self) -> bool {
        liveness::is_listening(self)
    }

    pub fn read(&self, path: &Path) -> Result<Option<Vec<u8>>, Error> {
        match fs::read(path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(file_error("read", path)(error)),
        }
    }
}

/// Writes a file atomically, creating its folder if missing; on return it survives a power cut.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let temporary = write_temporary(path, bytes, File::sync_data)?;
    fs::rename(&temporary, path).map_err(file_error("replace", path))
}

/// Writes a file atomically without flushing, for files that a run keeps only for inspection. A killed process loses
/// none of it; a power cut may.
pub fn write_unflushed(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let temporary = write_temporary(path, bytes, |_| Ok(()))?;
    fs::rename(&temporary, path).map_err(file_error("replace", path))
}

/// Makes a folder and its missing parents, readable by the user alone from the first moment: what is written there can
/// hold the model's answers unmasked.
pub(crate) fn make_private_dirs(dir: &Path) -> Result<(), Error> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(file_error("make the folder", dir))
}

fn write_temporary(path: &Path, bytes: &[u8], flush: fn(&File) -> std::io::Result<()>) -> Result<PathBuf, Error> {
    let dir = path.parent().unwrap_or(Path::new("."));
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    let temporary = dir.join(name);
    let created = match File::create(&temporary) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            make_private_dirs(dir)?;
            File::create(&temporary)
        }
        created => created,
    };
    let mut new = created.map_err(file_error("create", &temporary))?;
    new.write_all(bytes).map_err(file_error("write", &temporary))?;
    flush(&new).map_err(file_error("flush", &temporary))?;
    Ok(temporary)
}
