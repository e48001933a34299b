//! The audit file of a run: everything the way out tells, appended as it is told, chained line by line.
//!
//! What a line says and whether a file is as it was written is judged in `ralph_core::audit`.

mod book;
mod calls;
mod denials;
mod own;
mod read;
mod refused;
mod told;

pub use book::Book;
pub use calls::{Calls, Charged};
pub use denials::Denials;
#[cfg(target_os = "linux")]
pub(crate) use denials::is_refusal;
pub use own::{Ended, Own};
pub use read::{Entry, Reader, verify};
pub use refused::refused;

use std::path::PathBuf;

use crate::store::Folder;

/// Returns where the audit file of a run stands.
pub fn path(folder: &Folder) -> PathBuf {
    folder.path().join("audit.jsonl")
}
