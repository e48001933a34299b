//! Applies the unified diffs that models write, to one file.
//!
//! Models count badly and copy well: line numbers and counts in `@@` headers are hints, the context and deleted lines
//! are authoritative. A hunk applies where its lines occur, or not at all. Creating diffs, renames, deletions of files
//! and approximate matching are deliberately not here.

mod apply;
mod error;
mod parse;

pub use apply::apply;
pub use error::PatchError;
pub use parse::stat;
