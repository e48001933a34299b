//! The audit file of a run: everything the way out tells, appended as it is told, chained line by line.
//!
//! What a line says and whether a file is as it was written is judged in `ralph_core::audit`.

mod call_log;
mod convert;
mod denials;
mod engine_calls;
mod read;
mod refusals;
mod writer;

pub use call_log::{LoggedCharge, ModelCallLog};
pub use denials::DenialCounter;
pub(crate) use denials::is_refusal;
pub use engine_calls::{EngineCallResult, EngineCallTarget};
pub use read::{AuditLine, AuditReader, verify};
pub use refusals::read_refusals;
pub use writer::AuditLog;

use std::path::PathBuf;

use crate::store::RunFolder;

/// Returns where the audit file of a run stands.
pub fn path(folder: &RunFolder) -> PathBuf {
    folder.path().join("audit.jsonl")
}
