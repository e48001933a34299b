//! One run as an actor: it asks [`ralph_core::decide::next`] what to do, does it, and writes down that it was done.

mod action;
mod adopt;
mod agent_output;
mod begin;
mod close_checkpoint;
mod close_iteration;
mod controls;
mod conversation;
mod diagnose;
mod egress;
mod egress_events;
mod excerpts;
mod last_actions;
mod model_call;
mod proof_files;
mod prove;
mod publish;
mod ralph_files;
mod refusals;
mod resume;
mod rewind;
mod runner;
mod sandbox_recovery;
mod sandbox_setup;
mod session;
mod unsettled_calls;

pub use adopt::{SandboxOrigin, adopt, sandbox_origin};
pub use begin::{PreparedRun, RunSpec, baseline_findings, begin};
pub use controls::apply_at_rest;
pub use conversation::CONVERSATION_FILE;
pub use diagnose::read_proposals;
pub use resume::{BudgetRaise, RecreateSandbox, resume};
pub use rewind::rewind;
pub use runner::{KeepSandbox, Runner, StopSignals};
pub(crate) use sandbox_setup::{SandboxRole, fresh_sandbox};
pub(crate) use session::{SelectedAgent, protocol_mismatch, provider, shared_protocol};
