//! Reads the options that a task's front matter requests, unless overrides decide them.

use ralph_core::config::{Config, ConfigOrigin, TaskOptions};
use ralph_core::money::MicroUsd;
use ralph_core::task::FrontMatter;

use super::RunOverrides;

/// Returns the options a task requests; an overridden option is left out.
pub(super) fn task_options(front: &FrontMatter, overrides: &RunOverrides) -> TaskOptions {
    TaskOptions {
        backend: unless(
            overrides.backend.as_ref(),
            front.sandbox_provider.as_deref().and_then(|name| name.parse().ok()),
        ),
        image: front.sandbox_image.clone(),
        vcpu: front.sandbox_resources.vcpu.map(f64::from),
        memory_gib: front.sandbox_resources.memory_gib.map(f64::from),
        disk_gib: front.sandbox_resources.disk_gib.map(f64::from),
        network_policy: front.sandbox_network.policy,
        network_allow: front.sandbox_network.allow.clone(),
        max_cost_usd: unless(overrides.max_cost.as_ref(), front.max_cost_usd_estimate.map(MicroUsd::as_usd)),
        max_iterations: unless(overrides.max_iterations.as_ref(), front.max_iterations),
        max_wall_time_minutes: unless(overrides.max_minutes.as_ref(), front.max_wall_time_minutes),
        max_tokens: unless(overrides.max_tokens.as_ref(), front.max_tokens_total),
        max_consecutive_gutter: front.max_consecutive_gutter,
        profile_default: unless(overrides.profile.as_ref(), front.model_profile_default.clone()),
        profile_fallback: front.model_profile_fallback.clone(),
        profile_doctor: front.model_profile_doctor.clone(),
        ladder: front.ladder.clone(),
    }
}

/// Returns the cap of a run's cost; `None` where only tokens are capped.
pub(super) fn cost_cap(front: &FrontMatter, config: &Config) -> Option<MicroUsd> {
    // A task that caps only tokens has no cost cap, unless one is configured.
    let asked = front.max_cost_usd_estimate.is_some() || config.budget.max_cost.origin != ConfigOrigin::BuiltIn;
    (asked || front.max_tokens_total.is_none()).then_some(config.budget.max_cost.value)
}

fn unless<Override, Value>(decided: Option<&Override>, asked: Option<Value>) -> Option<Value> {
    if decided.is_some() { None } else { asked }
}
