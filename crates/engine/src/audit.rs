//! Writes and reads the audit log of a run: every egress event, appended as it happens, chained line by line.
//!
//! What a line means and whether a file is unchanged is checked in `ralph_core::audit`.

mod call_log;
mod engine_calls;
mod event_to_record;
mod read;
mod refusal_events;
mod refusals;
mod writer;

pub use call_log::{LoggedCharge, ModelCallLog};
pub use engine_calls::{EngineCallResult, EngineCallTarget};
pub use read::{AuditLine, AuditReader, verify};
pub use refusal_events::DenialCounter;
pub(crate) use refusal_events::is_refusal;
pub use refusals::read_refusals;
pub use writer::AuditLog;

use std::path::PathBuf;

use crate::store::RunFolder;

/// Returns the path of a run's audit log.
pub fn path(folder: &RunFolder) -> PathBuf {
    folder.path().join("audit.jsonl")
}
