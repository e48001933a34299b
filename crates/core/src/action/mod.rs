//! Defines what a model may ask for: the reply type with its schema, the parser of model text, and safe repository
//! paths.
//!
//! Nothing here executes an action; the engine does, one by one, in the sandbox.

mod extract;
mod kind;
mod parse;
mod reply;
mod repo_path;

pub use kind::ActionKind;
pub use parse::{InvalidReply, MAX_TEXT, ParsedReply, parse};
pub use reply::{Action, ActionReply, MAX_ACTIONS, PermissionBits, ReplyClaims, example, schema};
pub use repo_path::{BadPath, RepoPath, ReservedPath, WriteAccess};
