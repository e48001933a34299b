//! Parses a task into a value with byte spans, and makes the few edits that ralph may make to it.
//!
//! Whether a task is any good is checked in `lint`. Nothing here reads a file.

mod checkbox;
mod edit;
mod error;
mod front_matter;
mod front_matter_keys;
mod front_matter_reader;
mod front_matter_split;
mod markdown_scan;
mod numbered_step_heading;
mod parse;
mod yaml;

pub use checkbox::{Checkbox, CheckboxForm};
pub use edit::{CheckboxMark, mark_issue, tick, ticked_boxes};
pub use error::{TaskError, TaskProblem, TaskProblemKind};
pub use front_matter::{
    ApplyMode, DiagnoseSettings, EngineKind, FORMAT, FrontMatter, PullRequestSettings, TaskNetwork, TaskResources,
    TaskTestFrequency,
};
pub use front_matter_keys::{FrontMatterKey, ISSUE_KEYS, TASK_KEYS};
pub use front_matter_split::{MAX_BYTES, MAX_FRONT_BYTES, MAX_NESTING};
pub use parse::{IssueSpec, Task, parse, parse_issue};

pub(crate) use parse::{PartialTask, parse_issue_partial, parse_partial};
