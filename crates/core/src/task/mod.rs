//! The task: what a person wrote, as a value with byte spans, and the few edits ralph may make to it.
//!
//! Nothing here judges whether a task is any good (that is `lint`) and nothing reads a file.

mod checkbox;
mod edit;
mod error;
mod frame;
mod front;
mod key;
mod parse;
mod read;
mod scan;
mod step;
mod yaml;

pub use checkbox::{Checkbox, Form};
pub use edit::{Mark, mark, tick, ticked};
pub use error::{Error, Problem, ProblemKind};
pub use frame::{MAX_BYTES, MAX_FRONT_BYTES, MAX_NESTING};
pub use front::{Apply, Diagnose, EngineKind, FORMAT, Front, Mode, Network, PullRequest, Resources, TestEvery};
pub use key::{ISSUE_KEYS, KEYS, Key};
pub use parse::{IssueSpec, Task, parse, parse_issue};

pub(crate) use parse::{Examined, examine, examine_issue};
