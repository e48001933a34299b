//! Where runs live on the host: folders, their one event file, their artefacts and their lock.
//!
//! No sandbox can write here. State is a fold of `events.jsonl` and is computed nowhere else.

mod event_log;
mod home;
mod liveness;
mod run_folder;

pub use event_log::{AnnouncePhase, EventLog, EventLogReader, EventObserver, SilentObserver, read_events};
pub use home::{RalphHome, StoredRun};
pub(crate) use liveness::short_socket_path;
pub use run_folder::{RunFolder, RunLock, write_atomic, write_unflushed};
