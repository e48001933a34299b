//! Runs a task from first prompt to pull request and survives restarts.
//!
//! Decisions are made in `ralph_core`; this crate carries them out and records that it did.

pub mod agent;
pub mod audit;
mod baseline;
mod check_execution;
pub mod check_trial;
pub mod control;
pub mod egress;
mod error;
pub mod git;
pub mod host_environment;
pub mod model;
mod proof_file_restore;
mod read_text_file;
pub mod receipt;
pub mod run;
pub mod sandbox_lifecycle;
pub mod scm;
pub mod secret;
pub mod setup;
pub mod store;
mod tool_hashes;
pub mod verify;

pub use baseline::{BaselineReport, BaselineRow, check as check_baseline};
pub use error::Error;
pub use read_text_file::{read_optional_text_file, read_text_file};
