//! Stores runs on the host: folders, the event file, artefacts and the lock.
//!
//! No sandbox can write here. State is a fold of `events.jsonl` and is computed nowhere else; `summary.json` only
//! repeats a part of it for lists.

mod event_log;
mod home;
mod liveness;
mod run_folder;
mod scratch_folder;
mod summary_file;

pub use event_log::{AnnouncePhase, EventLog, EventLogReader, EventObserver, SilentObserver, read_events};
pub use home::{ListedRun, RalphHome, RunList, StoredRun};
pub(crate) use liveness::short_socket_path;
pub(crate) use run_folder::make_private_dirs;
pub use run_folder::{RunFolder, RunLock, write_atomic, write_unflushed};
pub(crate) use scratch_folder::ScratchFolder;
