//! What a model may ask for: the reply type with its schema, the reader of model text, and safe repository paths.
//!
//! Nothing here does an action; the engine does, one by one, with the sandbox.

mod extract;
mod parse;
mod path;
mod reply;

pub use parse::{Invalid, MAX_TEXT, Parsed, parse};
pub use path::{BadPath, RepoPath, Reserved, Write};
pub use reply::{Action, Claims, MAX_ACTIONS, Mode, Reply, examples, schema};
