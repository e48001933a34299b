//! Holds the options of a task as plain data, so that the config does not depend on the task file.

use super::config_keys::{
    BudgetValues, ConfigValues, ModelValues, NetworkValues, ResourceValues, RunValues, SandboxValues, dollars,
};
use super::error::Error;
use super::layer::ConfigLayer;
use super::origin::ConfigOrigin;
use super::value_types::{BackendKind, ByteSize, CpuCount};
use crate::gutter::LadderRung;
use crate::policy::{Policy, PolicyMode};

/// The keys of a task's front matter that are also options.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct TaskOptions {
    pub backend: Option<BackendKind>,
    pub image: Option<String>,
    pub vcpu: Option<f64>,
    pub memory_gib: Option<f64>,
    pub disk_gib: Option<f64>,
    pub network_policy: Option<PolicyMode>,
    /// Rules and preset names; `None` if the task sets none.
    pub network_allow: Option<Vec<String>>,
    pub max_cost_usd: Option<f64>,
    pub max_iterations: Option<u32>,
    pub max_wall_time_minutes: Option<u32>,
    pub max_tokens: Option<u64>,
    pub max_consecutive_gutter: Option<u32>,
    pub profile_default: Option<String>,
    pub profile_fallback: Option<String>,
    pub profile_doctor: Option<String>,
    pub ladder: Option<Vec<LadderRung>>,
}

impl TaskOptions {
    /// Converts the options into a layer.
    pub fn layer(self, path: &str) -> Result<ConfigLayer, Error> {
        let origin = ConfigOrigin::Task(path.to_owned());
        let bad = |key: &str, problem: &str| Error::Value {
            origin: origin.clone(),
            key: key.to_owned(),
            problem: problem.to_owned(),
            hint: None,
        };
        let size = |key, gib: Option<f64>| {
            gib.map(|gib| ByteSize::gib(gib).ok_or_else(|| bad(key, "is not an amount of gibibytes"))).transpose()
        };
        let allowed = match &self.network_allow {
            None => None,
            Some(entries) => {
                let policy = Policy::parse(PolicyMode::Allowlist, entries, &[]).map_err(|error| Error::Value {
                    origin: origin.clone(),
                    key: "sandbox_network.allow".to_owned(),
                    problem: format!("is not a list of hosts: {error}"),
                    hint: error.hint(),
                })?;
                Some(policy.allow)
            }
        };
        let cost = self
            .max_cost_usd
            .map(|usd| dollars(usd).ok_or_else(|| bad("max_cost_usd_estimate", "is not an amount of dollars")))
            .transpose()?;
        let values = ConfigValues {
            sandbox: SandboxValues {
                backend: self.backend,
                image: self.image,
                network: NetworkValues { policy: self.network_policy, allowed, ..NetworkValues::default() },
                resources: ResourceValues {
                    memory: size("sandbox_resources.memory_gib", self.memory_gib)?,
                    disk: size("sandbox_resources.disk_gib", self.disk_gib)?,
                    cpus: self
                        .vcpu
                        .map(|vcpu| {
                            CpuCount::new(vcpu)
                                .map_err(|_| bad("sandbox_resources.vcpu", "is not a number of processors"))
                        })
                        .transpose()?,
                    ..ResourceValues::default()
                },
                ..SandboxValues::default()
            },
            budget: BudgetValues {
                max_cost_usd: cost,
                max_iterations: self.max_iterations,
                max_wall_time_minutes: self.max_wall_time_minutes,
                max_tokens: self.max_tokens,
                max_consecutive_gutter: self.max_consecutive_gutter,
            },
            model: ModelValues {
                default: self.profile_default,
                fallback: self.profile_fallback,
                doctor: self.profile_doctor,
            },
            run: RunValues { ladder: self.ladder },
            ..ConfigValues::default()
        };
        Ok(ConfigLayer { origin, values })
    }
}
