//! The linter: what stands between a task and a run that could not end well.
//!
//! It judges text and facts it is given. It runs nothing (the baseline's commands are run by the engine, which hands
//! the results to [`baseline`]) and reads nothing.

mod baseline;
mod branch;
mod command;
mod context;
mod finding;
mod fix;
mod graph;
mod host;
mod rules;
mod words;

pub use baseline::{BaselineCheck, BaselineRun, TEST_CHECK, VERIFY_CHECK, baseline};
pub use branch::{BranchFlaw, branch_flaw};
pub use context::{Context, Maxima, Pricing, TEMPLATE_VARIABLES};
pub use finding::{Finding, Rule, Severity, has_errors};
pub use fix::fix;
pub use graph::dependency_cycle;
pub use rules::{lint, lint_issue};
