//! The facts about the host and the repository that a task is linted against.

use std::collections::{BTreeMap, BTreeSet};

/// The variables that templates of a pull request may use.
pub const TEMPLATE_VARIABLES: [&str; 6] = ["task_id", "title", "branch", "summary", "verification", "cost"];

/// Facts from outside the task. `None` means "not known here", and the rules that need the fact are skipped.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LintContext {
    /// Every profile by name, and whether its price is known.
    pub profiles: Option<BTreeMap<String, PriceStatus>>,
    /// The profile that the user named for this run, which overrides the task's.
    pub wanted_profile: Option<String>,
    /// The profiles used when the task names none.
    pub default_profile: Option<String>,
    pub fallback_profile: Option<String>,
    pub doctor_profile: Option<String>,
    /// The fewest checkboxes that the config accepts; a task may ask for more.
    pub min_checkboxes: u32,
    /// A flag or the config caps tokens, so the task need not.
    pub has_token_cap: bool,
    /// Every backend by name, with its maximum resources.
    pub backends: Option<BTreeMap<String, BackendMaxima>>,
    /// The backend used when the task names none.
    pub default_backend: Option<String>,
    /// The agents `engine: agent` can name.
    pub agents: Option<BTreeSet<String>>,
    /// The files of the base commit, as paths from the root of the repo.
    pub files: Option<BTreeSet<String>>,
    /// The dependencies of each issue, and the issue being linted.
    pub dependencies: BTreeMap<u64, Vec<u64>>,
    pub issue: Option<u64>,
    /// The project's config has a test command, so an issue does not need one.
    pub has_test_command: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PriceStatus {
    Known,
    Unknown,
}

/// The maximum resources that a backend can give one sandbox; `None` where it has no limit of its own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BackendMaxima {
    pub vcpu: Option<u32>,
    pub memory_gib: Option<u32>,
    pub disk_gib: Option<u32>,
}
