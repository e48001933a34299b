//! Credentials in words: a value that cannot be printed, what kind it is, when it ends and how it is tried.
//!
//! Where credentials are kept, and the call that tries one, are the engine's business.

mod agent;
mod command;
mod expiry;
mod input;
mod kind;
mod name;
mod probe;
mod value;

pub use agent::{AGENTS, Agent, UnknownAgent};
pub use command::{BadCommand, Command};
pub use expiry::{BadExpiry, SOON_DAYS, days_left, expiry, words};
pub use input::{BadValue, LONGEST, read, read_new};
pub use kind::{Kind, UnknownKind};
pub use name::{BadName, Name, credentials, looks_like_a_value};
pub use probe::{NoProbe, Probe, in_the_clear, probe, subscription};
pub use value::Secret;
