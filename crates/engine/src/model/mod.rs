//! Asking a language model one thing and getting one answer, whoever the provider is.
//!
//! `call` has the words. `chat` (with `wire`) and `scripted` (with `script`) are the two ways to get an answer. `class`
//! (with `said` and `reset`) tells what kind of trouble an error is, `retry` what follows. Prompts, prices and budgets
//! are not here.

mod call;
mod chat;
mod class;
mod error;
mod reset;
mod retry;
mod said;
mod script;
pub mod scripted;
mod wire;

pub use call::{CallKey, Finish, Lost, Model, Reply, Request, Role, Turn, estimate};
pub use chat::{Chat, Endpoint, JsonMode, client};
pub use class::{Class, classify};
pub use error::{Error, Flaw};
pub use retry::{Failure, MAX_CALLS, Next, call_with_retry, max_attempts, policy};
