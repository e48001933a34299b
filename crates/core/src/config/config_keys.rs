//! Defines the keys of `config.toml`, all optional, because a layer sets only what it changes.

use schemars::JsonSchema;
use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize};

use super::value_types::{BackendKind, ByteSize, CpuCount, ToolchainSelection};
use crate::gutter::{LadderRung, MAX_RUNGS};
use crate::money::MicroUsd;
use crate::policy::{self, PolicyMode, PolicyRule};

/// The values of one layer. Budgets, resources and timeouts in a file are caps for everything below it.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
#[schemars(rename = "Values")]
pub struct ConfigValues {
    pub sandbox: SandboxValues,
    pub budget: BudgetValues,
    pub model: ModelValues,
    pub git: GitValues,
    pub lint: LintValues,
    pub check: CheckValues,
    pub agent: AgentValues,
    pub run: RunValues,
    pub egress: EgressValues,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SandboxValues {
    /// Where sandboxes run.
    pub backend: Option<BackendKind>,
    /// Image the sandbox is created from, instead of the backend's own.
    pub image: Option<String>,
    /// Toolchains of the home folder that the sandbox may see, read-only: "auto", "none" or names.
    #[schemars(with = "Option<serde_json::Value>")]
    pub toolchains: Option<ToolchainSelection>,
    pub network: NetworkValues,
    pub resources: ResourceValues,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct NetworkValues {
    /// What happens to hosts that no rule names.
    pub policy: Option<PolicyMode>,
    /// Hosts, `*.suffix`, `host:port`, `METHOD host/path` and preset names that may be reached.
    #[serde(deserialize_with = "rules")]
    #[schemars(with = "Option<Vec<String>>")]
    pub allowed: Option<Vec<PolicyRule>>,
    /// The same forms; these take precedence over `allowed`.
    #[serde(deserialize_with = "rules")]
    #[schemars(with = "Option<Vec<String>>")]
    pub denied: Option<Vec<PolicyRule>>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ResourceValues {
    /// Memory, like "8g".
    #[schemars(with = "Option<String>")]
    pub memory: Option<ByteSize>,
    /// Processors, like "4" or "0.5".
    #[schemars(with = "Option<String>")]
    pub cpus: Option<CpuCount>,
    /// Disk, like "20g".
    #[schemars(with = "Option<String>")]
    pub disk: Option<ByteSize>,
    /// Processes at the same time.
    pub pids: Option<u32>,
    /// Maximum duration of one command that a model runs, in minutes.
    pub timeout_minutes: Option<u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BudgetValues {
    /// Maximum cost of one run, in US dollars.
    #[serde(deserialize_with = "usd")]
    #[schemars(with = "Option<f64>")]
    pub max_cost_usd: Option<MicroUsd>,
    pub max_iterations: Option<u32>,
    pub max_wall_time_minutes: Option<u32>,
    /// Maximum number of tokens of one run, all classes together.
    pub max_tokens: Option<u64>,
    /// Gutter verdicts without progress, resumes or not, after which a run with no rung left ends as failed.
    pub max_consecutive_gutter: Option<u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ModelValues {
    /// Profile of a run.
    pub default: Option<String>,
    /// Profile to switch to when a run goes in circles.
    pub fallback: Option<String>,
    /// Profile of the diagnosis.
    pub doctor: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct GitValues {
    /// Author and committer of ralph's commits.
    pub name: Option<String>,
    pub email: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct LintValues {
    /// Minimum number of checkboxes of a task.
    pub min_checkboxes: Option<u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CheckValues {
    /// Maximum duration of one test or proof, in seconds.
    pub timeout_s: Option<u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AgentValues {
    /// The command line of the agent `custom`; `{prompt}`, `{prompt_file}`, `{folder}`, `{model}` and `{base_url}` are
    /// filled in.
    pub command: Option<Vec<String>>,
    /// Maximum duration of one session, in seconds.
    pub session_s: Option<u32>,
    /// How long an agent may print nothing, in seconds.
    pub idle_s: Option<u32>,
    /// How long an agent may keep running after it reported its result, in seconds.
    pub grace_s: Option<u32>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RunValues {
    /// What is tried when a run goes in circles, one rung for each consecutive verdict.
    #[serde(deserialize_with = "ladder")]
    pub ladder: Option<Vec<LadderRung>>,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EgressValues {
    /// A run that has sent more than this, like "64m", raises one alarm; model calls are not counted.
    #[schemars(with = "Option<String>")]
    pub alarm_after: Option<ByteSize>,
}

/// Every key of the file with its section: what `config show` lists and "did you mean" chooses from.
pub(super) const KEYS: [&str; 29] = [
    "sandbox.backend",
    "sandbox.image",
    "sandbox.toolchains",
    "sandbox.network.policy",
    "sandbox.network.allowed",
    "sandbox.network.denied",
    "sandbox.resources.memory",
    "sandbox.resources.cpus",
    "sandbox.resources.disk",
    "sandbox.resources.pids",
    "sandbox.resources.timeout_minutes",
    "budget.max_cost_usd",
    "budget.max_iterations",
    "budget.max_wall_time_minutes",
    "budget.max_tokens",
    "budget.max_consecutive_gutter",
    "model.default",
    "model.fallback",
    "model.doctor",
    "git.name",
    "git.email",
    "lint.min_checkboxes",
    "check.timeout_s",
    "agent.command",
    "agent.session_s",
    "agent.idle_s",
    "agent.grace_s",
    "run.ladder",
    "egress.alarm_after",
];

/// Keys of other tools and versions that would have no effect, with the reason.
pub(super) const KEYS_WITHOUT_EFFECT: [(&str, &str); 4] = [
    ("sandbox.enabled", "every run has a sandbox; `backend = \"local\"` is the only one that does not isolate"),
    ("sandbox.network.enforcement", "every sandbox is confined to the egress proxy by its own network"),
    ("sandbox.reuse_container", "every run has a sandbox of its own, which lives until the run ends"),
    ("sandbox.use_local_image", "a run takes images from this machine only"),
];

fn rules<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<PolicyRule>>, D::Error> {
    let Some(entries) = Option::<Vec<String>>::deserialize(deserializer)? else { return Ok(None) };
    let policy = policy::Policy::parse(PolicyMode::Allowlist, &entries, &[]).map_err(|error| match error.hint() {
        Some(hint) => D::Error::custom(format_args!("{error} ({hint})")),
        None => D::Error::custom(error),
    })?;
    Ok(Some(policy.allow))
}

fn ladder<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Vec<LadderRung>>, D::Error> {
    let Some(rungs) = Option::<Vec<LadderRung>>::deserialize(deserializer)? else { return Ok(None) };
    if rungs.is_empty() || rungs.len() > MAX_RUNGS {
        return Err(D::Error::custom(format_args!("a ladder has 1 to {MAX_RUNGS} rungs")));
    }
    Ok(Some(rungs))
}

fn usd<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<MicroUsd>, D::Error> {
    let Some(usd) = Option::<f64>::deserialize(deserializer)? else { return Ok(None) };
    dollars(usd).map(Some).ok_or_else(|| D::Error::custom("dollars are a number, zero or more"))
}

/// Converts a number of dollars; `None` if it is not an amount.
pub(super) fn dollars(usd: f64) -> Option<MicroUsd> {
    (0.0..=1e9).contains(&usd).then(|| MicroUsd::from_usd(usd))
}
