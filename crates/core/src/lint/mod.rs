//! The linter: what stands between a task and a run that could not end well.
//!
//! It judges text and facts it is given. It runs nothing (the baseline's commands are run by the engine, which hands
//! the results to [`baseline`]) and reads nothing.

mod baseline;
mod branch;
mod context;
mod dependency_graph;
mod finding;
mod fix;
mod name_rules;
mod rules;
mod shell_command;
mod vague_words;

pub use baseline::{BaselineCheck, BaselineRun, TEST_CHECK, VERIFY_CHECK, lint_baseline};
pub use branch::{BranchFlaw, branch_flaw};
pub use context::{BackendMaxima, LintContext, PriceStatus, TEMPLATE_VARIABLES};
pub use dependency_graph::dependency_cycle;
pub use finding::{LintFinding, LintRule, Severity, has_errors};
pub use fix::fix;
pub use rules::{lint, lint_issue};
