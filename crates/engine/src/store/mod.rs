//! Where runs live on the host: folders, their one event file, their artefacts and their lock.
//!
//! No sandbox can write here. State is a fold of `events.jsonl` and is computed nowhere else; `summary.json` only repeats
//! a part of it for lists.

mod event_log;
mod home;
mod run_folder;
mod summary_file;

pub use event_log::{AnnouncePhase, EventLog, EventLogReader, EventObserver, SilentObserver, read_events};
pub use home::{ListedRun, RalphHome, RunList, StoredRun};
pub use run_folder::{RunFolder, write_atomic, write_unflushed};
