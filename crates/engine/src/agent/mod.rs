//! Manages the programs of coding agents on this machine: finds them in the store or on `PATH`, fetches them, and makes
//! them visible in sandboxes.
//!
//! Their prompts and output formats are in `ralph_core::agent`; `run` starts the sessions.

mod copy_from_sandbox;
mod error;
mod find;
mod install;
mod package;
mod path_search;
pub mod store;

pub use error::Error;
pub use find::{AgentOrigin, AgentProgram, find};
pub use install::{AgentInstallRequest, install};

/// The folder in sandboxes that holds the programs of agents.
pub const SANDBOX_AGENTS_DIR: &str = "/opt/ralph/agents";
