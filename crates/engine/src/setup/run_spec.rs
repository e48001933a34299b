//! Resolves a task, the config and overrides into a run's specification.

use ralph_core::budget::Budget;
use ralph_core::config::{ByteSize, Config, CpuCount, ResourceConfig};
use ralph_core::event::{CommitIdentity, PinnedResources};
use ralph_core::policy::Policy;
use ralph_core::task::{self, FrontMatter};

use super::agent::resolve_agent;
use super::pin_model_profiles::pin_run_profiles;
use super::task_options::{cost_cap, task_options};
use super::{LoadedTask, RunOverrides, SetupError, resolve_config};
use crate::host_environment::HostContext;
use crate::run::RunSpec;

/// Resolves everything a run is made from.
pub fn resolve_run(host: &HostContext, task: &LoadedTask, overrides: &RunOverrides) -> Result<RunSpec, SetupError> {
    let source = task.source.clone().unwrap_or_default();
    let parsed = task::parse(&source)?;
    let config = resolve_with_task(host, task, &parsed.front, overrides)?;
    let profiles = pin_run_profiles(&host.home, task.repo.top(), &config)?;
    let agent = resolve_agent(&parsed.front, overrides, &config.agent)?;
    let budget = Budget {
        iterations: config.budget.max_iterations.value,
        wall_ms: u64::from(config.budget.max_wall_time_minutes.value).saturating_mul(60_000),
        cost: cost_cap(&parsed.front, &config),
        tokens: config.budget.max_tokens.value,
        consecutive_gutter: config.budget.max_consecutive_gutter.value,
    };
    let proof_timeout = u64::from(parsed.front.proof_timeout_s);
    Ok(RunSpec {
        repo: task.repo.top().to_owned(),
        source,
        task_path: task.repo_path.clone(),
        base_branch: parsed.front.base_branch.clone(),
        backend: config.sandbox.backend.value.as_str().to_owned(),
        image: config.sandbox.image.value.clone(),
        resources: pinned_resources(&config.sandbox.resources),
        toolchains: config.sandbox.toolchains.value.clone(),
        secret_grants: overrides.secret_grants.clone(),
        agent,
        profiles,
        budget,
        policy: config.sandbox.network.policy(),
        identity: CommitIdentity { name: config.git.name.value.clone(), email: config.git.email.value.clone() },
        ladder: config.run.ladder.value.clone(),
        alarm_after: Some(config.egress.alarm_after.value.bytes()),
        check_timeout_s: proof_timeout.min(u64::from(config.check.timeout_s.value)),
        command_timeout_s: u64::from(config.sandbox.resources.timeout_minutes.value).saturating_mul(60),
        baseline: !overrides.no_baseline,
        include_dirty: overrides.include_dirty,
        task: parsed,
    })
}

/// Returns the network policy that a run of this task would have. A task that cannot be read, or requests more than it
/// may have, is ignored: resolving the run reports that.
pub(super) fn resolve_policy(
    host: &HostContext,
    task: &LoadedTask,
    overrides: &RunOverrides,
) -> Result<Policy, SetupError> {
    let parsed = task.source.as_deref().and_then(|source| task::parse(source).ok());
    let asked = parsed.and_then(|parsed| resolve_with_task(host, task, &parsed.front, overrides).ok());
    let config = asked.map_or_else(|| resolve_config(host, Some(task.repo.top()), overrides, None), Ok)?;
    Ok(config.sandbox.network.policy())
}

fn resolve_with_task(
    host: &HostContext,
    task: &LoadedTask,
    front: &FrontMatter,
    overrides: &RunOverrides,
) -> Result<Config, SetupError> {
    let path = task.display_path.display().to_string();
    resolve_config(host, Some(task.repo.top()), overrides, Some((task_options(front, overrides), &path)))
}

/// Returns the limits of sandboxes that the config asks for.
pub fn pinned_resources(config: &ResourceConfig) -> PinnedResources {
    PinnedResources {
        memory: config.memory.value.map(ByteSize::bytes),
        cpus: config.cpus.value.map(CpuCount::millis),
        disk: config.disk.value.map(ByteSize::bytes),
        pids: Some(u64::from(config.pids.value)),
    }
}
