//! Tests the program as users and scripts run it: as a process, in a home of its own.
#![expect(clippy::disallowed_methods, reason = "tests read the environment they are started in")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[cfg(target_os = "linux")]
mod agent_catalogue;
#[cfg(target_os = "linux")]
mod agent_key_isolation;
#[cfg(target_os = "linux")]
mod agent_runs;
mod audit;
mod baseline;
mod budget;
mod cli_harness;
mod controls;
mod docs;
#[cfg(target_os = "linux")]
mod egress_failure;
mod error_messages;
mod hostile_model;
mod import;
mod init;
#[cfg(target_os = "linux")]
mod lint_and_run;
#[cfg(target_os = "linux")]
mod litellm;
#[cfg(target_os = "linux")]
mod package_registries;
mod policy;
mod profiles;
#[cfg(target_os = "linux")]
mod proof_matrix;
mod proofs;
mod recovery;
#[cfg(target_os = "linux")]
mod redteam;
mod repo_fixture;
mod resume;
mod run_output;
#[cfg(target_os = "linux")]
mod sandbox_tools;
mod secret_leaks;
#[cfg(target_os = "linux")]
mod secret_search;
mod secrets;
#[cfg(target_os = "linux")]
mod watch;
