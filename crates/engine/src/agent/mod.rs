//! The programs of coding agents on this machine: found on the shelf or on `PATH`, fetched, and shown to sandboxes.
//!
//! What they are told and what they say is in `ralph_core::agent`; the sessions are started by `run`.

mod copy_out;
mod error;
mod find;
mod install;
mod package;
mod path_search;
pub mod store;

pub use error::Error;
pub use find::{AgentOrigin, AgentProgram, find};
pub use install::{AgentInstallRequest, install};

/// Where the programs of agents are seen in sandboxes.
pub const SANDBOX_AGENTS_DIR: &str = "/opt/ralph/agents";
