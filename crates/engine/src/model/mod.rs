//! Asking a language model one thing and getting one answer, whoever the provider is.
//!
//! `call` has the words. `remote` (with `address` and `wire`) and `scripted` (with `script`) are the two ways to get an
//! answer. `class` (with `said` and `reset`) tells what kind of trouble an error is, `retry` what follows. Prompts,
//! prices and budgets are not here.

mod address;
mod call;
mod class;
mod error;
mod remote;
mod reset;
mod retry;
mod said;
mod script;
pub mod scripted;
mod wire;

pub use address::Scheme;
pub use call::{CallKey, Finish, Lost, Model, Reply, Request, Role, Turn, estimate};
pub use class::{Class, classify};
pub(crate) use error::is_distrust;
pub use error::{Error, Flaw};
pub use remote::{Endpoint, Remote, client};
pub use retry::{Failure, MAX_CALLS, Next, Pace, Stop, call_with_retry, max_attempts, pause_after, policy};
