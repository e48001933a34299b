//! The front matter as typed values with their defaults.
//!
//! A field is optional where the linter must distinguish "missing" from "default"; the accessors then return the
//! default.

use serde::{Deserialize, Serialize};

use crate::gutter::LadderRung;
use crate::money::MicroUsd;
use crate::policy::PolicyMode;

/// The version of the task format that this program reads.
pub const FORMAT: u32 = 1;

/// The parsed front matter of a task.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FrontMatter {
    /// Empty only in an issue, which gets its name from its number.
    pub task_id: String,
    pub repo_url: Option<String>,
    pub base_branch: Option<String>,
    pub target_branch_prefix: Option<String>,
    pub target_branch_slug: Option<String>,
    pub engine: EngineKind,
    pub agent: Option<String>,
    pub sandbox_provider: Option<String>,
    pub sandbox_image: Option<String>,
    pub sandbox_resources: TaskResources,
    pub sandbox_network: TaskNetwork,
    pub model_profile_default: Option<String>,
    pub model_profile_fallback: Option<String>,
    pub model_profile_doctor: Option<String>,
    pub max_iterations: Option<u32>,
    pub max_wall_time_minutes: Option<u32>,
    pub max_cost_usd_estimate: Option<MicroUsd>,
    pub max_tokens_total: Option<u64>,
    pub max_consecutive_gutter: Option<u32>,
    #[serde(default)]
    pub ladder: Option<Vec<LadderRung>>,
    pub test_command: Option<String>,
    pub verify_commands: Vec<String>,
    pub test_every: TaskTestFrequency,
    pub proof_timeout_s: u32,
    pub min_checkboxes: u32,
    pub min_changed_lines: u32,
    pub protected_paths: Vec<String>,
    pub may_change: Vec<String>,
    pub commit_state: bool,
    pub diagnose: DiagnoseSettings,
    pub pr: PullRequestSettings,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EngineKind {
    #[default]
    Actions,
    Agent,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TaskTestFrequency {
    #[default]
    Iteration,
    Claim,
}

/// The requested sandbox resources; the backend decides about those that are not set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskResources {
    pub vcpu: Option<u32>,
    pub memory_gib: Option<u32>,
    pub disk_gib: Option<u32>,
}

/// A request to narrow the host's network policy.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskNetwork {
    pub policy: Option<PolicyMode>,
    /// `None` keeps the host's list; an empty list allows nothing.
    pub allow: Option<Vec<String>>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiagnoseSettings {
    pub apply: ApplyMode,
    /// Diagnose every so many iterations; 0 means only when stuck.
    pub every: u32,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ApplyMode {
    #[default]
    Approve,
    Auto,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PullRequestSettings {
    pub draft: bool,
    pub labels: Vec<String>,
    pub title_template: Option<String>,
    pub body_template: Option<String>,
}

impl Default for PullRequestSettings {
    fn default() -> Self {
        Self { draft: true, labels: Vec::new(), title_template: None, body_template: None }
    }
}

impl Default for FrontMatter {
    fn default() -> Self {
        Self {
            task_id: String::new(),
            repo_url: None,
            base_branch: None,
            target_branch_prefix: None,
            target_branch_slug: None,
            engine: EngineKind::default(),
            agent: None,
            sandbox_provider: None,
            sandbox_image: None,
            sandbox_resources: TaskResources::default(),
            sandbox_network: TaskNetwork::default(),
            model_profile_default: None,
            model_profile_fallback: None,
            model_profile_doctor: None,
            max_iterations: None,
            max_wall_time_minutes: None,
            max_cost_usd_estimate: None,
            max_tokens_total: None,
            max_consecutive_gutter: None,
            ladder: None,
            test_command: None,
            verify_commands: Vec::new(),
            test_every: TaskTestFrequency::default(),
            proof_timeout_s: 600,
            min_checkboxes: 2,
            min_changed_lines: 1,
            protected_paths: Vec::new(),
            may_change: Vec::new(),
            commit_state: false,
            diagnose: DiagnoseSettings::default(),
            pr: PullRequestSettings::default(),
        }
    }
}

impl FrontMatter {
    /// Returns what the run may change although checks use it: `may_change`, and each `!path` of `protected_paths`.
    pub fn freed_paths(&self) -> Vec<String> {
        let freed = self.protected_paths.iter().filter_map(|path| path.strip_prefix('!')).map(str::to_owned);
        self.may_change.iter().cloned().chain(freed).collect()
    }

    pub fn agent(&self) -> &str {
        self.agent.as_deref().unwrap_or("claude")
    }

    pub fn max_iterations(&self) -> u32 {
        self.max_iterations.unwrap_or(30)
    }

    pub fn max_wall_time_minutes(&self) -> u32 {
        self.max_wall_time_minutes.unwrap_or(120)
    }

    /// Returns the cost cap, which exists even if only tokens were capped.
    pub fn max_cost_usd_estimate(&self) -> MicroUsd {
        self.max_cost_usd_estimate.unwrap_or(MicroUsd(10_000_000))
    }

    pub fn max_tokens_total(&self) -> Option<u64> {
        self.max_tokens_total
    }

    pub fn max_consecutive_gutter(&self) -> u32 {
        self.max_consecutive_gutter.unwrap_or(3)
    }

    /// Returns the start of the branch name, which always ends in a slash.
    pub fn branch_prefix(&self) -> String {
        match &self.target_branch_prefix {
            Some(prefix) if prefix.ends_with('/') => prefix.clone(),
            Some(prefix) => format!("{prefix}/"),
            None => format!("ralph/{}/", self.task_id),
        }
    }
}
