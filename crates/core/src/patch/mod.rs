//! Applies the unified diffs that models write, to one file.
//!
//! Models count badly and copy well: line numbers and counts in `@@` headers are hints, the context and deleted lines
//! are the truth. A hunk goes where its lines stand, or nowhere. Making diffs, renames, deletions of files and
//! approximate matching are deliberately not here.

mod apply;
mod error;
mod parse;

pub use apply::apply;
pub use error::PatchError;
pub use parse::stat;
