//! Defines the options of one run that override task and config.

use ralph_core::config::{BackendKind, BudgetValues, ConfigValues, ModelValues, NetworkValues, SandboxValues};
use ralph_core::money::MicroUsd;
use ralph_core::policy::{Policy, PolicyMode};

use super::SetupError;

/// Options set for one run; they win over every other layer.
#[derive(Debug, Clone, Default)]
pub struct RunOverrides {
    pub backend: Option<String>,
    pub profile: Option<String>,
    pub engine: Option<String>,
    pub agent: Option<String>,
    pub max_iterations: Option<u32>,
    pub max_cost: Option<f64>,
    pub max_minutes: Option<u32>,
    pub max_tokens: Option<u64>,
    pub network: Option<PolicyMode>,
    pub allow_hosts: Vec<String>,
    /// Secrets to grant, each as `NAME=HOST`.
    pub secret_grants: Vec<String>,
    pub no_baseline: bool,
    pub include_dirty: bool,
}

impl RunOverrides {
    /// Returns the values of the topmost config layer.
    pub(super) fn config_values(&self) -> Result<ConfigValues, SetupError> {
        let backend = self.backend.as_deref().map(str::parse::<BackendKind>).transpose()?;
        // Parsed like a list of the configuration file, so that presets and paths work here too.
        let hosts = Policy::parse(PolicyMode::Allowlist, &self.allow_hosts, &[])?.allow;
        let allowed = (!hosts.is_empty()).then_some(hosts);
        Ok(ConfigValues {
            sandbox: SandboxValues {
                backend,
                network: NetworkValues { policy: self.network, allowed, ..NetworkValues::default() },
                ..SandboxValues::default()
            },
            budget: BudgetValues {
                max_cost_usd: self.max_cost.map(MicroUsd::from_usd),
                max_iterations: self.max_iterations,
                max_wall_time_minutes: self.max_minutes,
                max_tokens: self.max_tokens,
                ..BudgetValues::default()
            },
            model: ModelValues { default: self.profile.clone(), ..ModelValues::default() },
            ..ConfigValues::default()
        })
    }
}
