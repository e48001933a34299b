//! Tests the engine's modules together, with real programs in temporary folders.

#![expect(clippy::disallowed_methods, reason = "tests read the environment they are started in")]
#![expect(clippy::unwrap_used, reason = "a test that cannot continue fails")]

mod clock_change;
mod control;
mod crash;
mod diagnosis;
#[cfg(target_os = "linux")]
mod egress_restart;
mod fallback;
mod git;
mod hostile_repository;
mod import_cost;
mod killable_run;
mod model;
mod old_run;
mod prompt;
mod provider_faults;
#[cfg(target_os = "linux")]
mod provider_wait;
mod publish;
mod replay;
mod run_fixture;
mod run_list;
mod run_request;
mod second_backend;
mod traces;
mod unpriced_profiles;
mod unsettled_calls;
