//! The programs of coding agents on this machine: found on the shelf or on `PATH`, fetched, and shown to sandboxes.
//!
//! What they are told and what they say is in `ralph_core::agent`; the sessions are started by `run`.

mod error;
mod find;
#[cfg(target_os = "linux")]
mod install;
mod package;
mod path;
pub mod shelf;
#[cfg(target_os = "linux")]
mod take;

pub use error::Error;
pub use find::{Found, Whence, find};
#[cfg(target_os = "linux")]
pub use install::{Wish, install};

/// Where the programs of agents are seen in sandboxes.
pub const INSIDE: &str = "/opt/ralph/agents";
