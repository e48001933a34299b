//! The facts about the host and the repo that the linter judges a task against.

use std::collections::{BTreeMap, BTreeSet};

/// What the templates of a pull request may name.
pub const TEMPLATE_VARIABLES: [&str; 6] = ["task_id", "title", "branch", "summary", "verification", "cost"];

/// What is known outside the task. `None` means "not known here", and the rules that need it stay silent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LintContext {
    /// Every profile by name, and whether its price is known.
    pub profiles: Option<BTreeMap<String, PriceStatus>>,
    /// The profile a person named for this run, whatever the task says.
    pub wanted_profile: Option<String>,
    /// The profiles of a task that names none.
    pub default_profile: Option<String>,
    pub fallback_profile: Option<String>,
    pub doctor_profile: Option<String>,
    /// A flag or the config caps tokens, so the task need not.
    pub has_token_cap: bool,
    /// Every backend by name, and the most it can give.
    pub backends: Option<BTreeMap<String, BackendMaxima>>,
    /// The backend of a task that names none.
    pub default_backend: Option<String>,
    /// The agents `engine: agent` can name.
    pub agents: Option<BTreeSet<String>>,
    /// The files of the base commit, as paths from the root of the repo.
    pub files: Option<BTreeSet<String>>,
    /// What each issue waits for, and which issue is being judged.
    pub dependencies: BTreeMap<u64, Vec<u64>>,
    pub issue: Option<u64>,
    /// The project's config has a test command, so an issue need not say one.
    pub has_test_command: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PriceStatus {
    Known,
    Unknown,
}

/// The most a backend can give one sandbox; `None` where it has no limit of its own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BackendMaxima {
    pub vcpu: Option<u32>,
    pub memory_gib: Option<u32>,
    pub disk_gib: Option<u32>,
}
