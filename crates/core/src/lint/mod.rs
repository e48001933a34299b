//! Lints a task, so that a run that cannot succeed does not start.
//!
//! The linter works on the text and the facts it is given. It runs no commands (the engine runs the baseline's
//! commands and passes the results to [`lint_baseline`]) and reads no files.

mod baseline_rules;
mod branch;
mod context;
mod dependency_graph;
mod finding;
mod fix;
mod name_rules;
mod rules;
mod shell_command;
mod start_failure;
mod vague_words;

pub use baseline_rules::{BaselineCheck, BaselineRun, lint_baseline};
pub use branch::{BranchFlaw, branch_flaw};
pub use context::{BackendMaxima, LintContext, PriceStatus, TEMPLATE_VARIABLES};
pub use dependency_graph::dependency_cycle;
pub use finding::{LintFinding, LintRule, Severity, has_errors};
pub use fix::fix;
pub use rules::{lint, lint_issue};
pub use start_failure::{ProjectNames, submodule_paths, telling_line};
