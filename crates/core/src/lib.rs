//! Defines the vocabulary of ralph and decides what a run does next, as pure functions.
//!
//! Nothing here reads a file, a clock, the environment or the network, and nothing blocks: `clippy.toml` and
//! `cargo xtask rules` forbid it.

pub mod action;
pub mod agent;
pub mod audit;
pub mod backoff;
pub mod budget;
pub mod commit_sha;
pub mod config;
pub mod control_request;
pub mod decide_next_step;
pub mod diagnosis;
pub mod egress;
pub mod env_vars;
pub mod event;
pub mod exit_code;
pub mod gate_or_checkbox;
pub mod gutter;
pub mod hash;
pub mod identifiers;
pub mod import;
pub mod lint;
pub mod money;
pub mod patch;
pub mod policy;
pub mod price;
pub mod profile;
pub mod prompt;
pub mod proof_files;
pub mod pull_request;
pub mod rate_limit_reset;
pub mod receipt;
pub mod redact;
pub mod run;
pub mod secret;
pub mod source_span;
pub mod task;
pub mod task_init;
pub mod text;
