//! Runs a task from first prompt to pull request and survives restarts.
//!
//! Judgement is in `ralph_core`; this crate does what it decides and writes down that it was done.

pub mod agent;
pub mod audit;
mod baseline;
mod check;
pub mod control;
pub mod egress;
mod error;
pub mod git;
pub mod host;
pub mod model;
pub mod receipt;
pub mod run;
pub mod sandboxes;
pub mod scm;
pub mod secret;
pub mod setup;
pub mod store;
pub mod verify;

pub use baseline::{BaselineReport, check as check_baseline};
pub use error::Error;
