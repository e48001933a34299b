//! Defines the merged config: every value with its origin.

use serde::Serialize;

use super::origin::ResolvedValue;
use super::value_types::{BackendKind, ByteSize, CpuCount, ToolchainSelection};
use crate::gutter::LadderRung;
use crate::money::MicroUsd;
use crate::policy::{Policy, PolicyMode, PolicyRule};

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Config {
    pub sandbox: SandboxConfig,
    pub budget: BudgetConfig,
    pub model: ModelConfig,
    pub git: GitConfig,
    pub lint: LintConfig,
    pub check: CheckConfig,
    pub agent: AgentConfig,
    pub run: RunConfig,
    pub egress: EgressConfig,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SandboxConfig {
    pub backend: ResolvedValue<BackendKind>,
    pub image: ResolvedValue<Option<String>>,
    pub toolchains: ResolvedValue<ToolchainSelection>,
    pub network: NetworkConfig,
    pub resources: ResourceConfig,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct NetworkConfig {
    pub policy: ResolvedValue<PolicyMode>,
    pub allowed: ResolvedValue<Vec<PolicyRule>>,
    pub denied: ResolvedValue<Vec<PolicyRule>>,
}

impl NetworkConfig {
    /// Returns the policy that the egress proxy enforces.
    pub fn policy(&self) -> Policy {
        Policy { mode: self.policy.value, allow: self.allowed.value.clone(), deny: self.denied.value.clone() }
    }
}

/// Resource limits; `None` leaves the choice to the backend.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ResourceConfig {
    pub memory: ResolvedValue<Option<ByteSize>>,
    pub cpus: ResolvedValue<Option<CpuCount>>,
    pub disk: ResolvedValue<Option<ByteSize>>,
    pub pids: ResolvedValue<u32>,
    pub timeout_minutes: ResolvedValue<u32>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BudgetConfig {
    pub max_cost: ResolvedValue<MicroUsd>,
    pub max_iterations: ResolvedValue<u32>,
    pub max_wall_time_minutes: ResolvedValue<u32>,
    /// `None` sets no cap.
    pub max_tokens: ResolvedValue<Option<u64>>,
    pub max_consecutive_gutter: ResolvedValue<u32>,
}

/// Names of model profiles.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ModelConfig {
    pub default: ResolvedValue<String>,
    /// `None`: a run that goes in circles keeps its profile.
    pub fallback: ResolvedValue<Option<String>>,
    /// `None`: the diagnosis is made by the fallback, else by the run's own profile.
    pub doctor: ResolvedValue<Option<String>>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GitConfig {
    pub name: ResolvedValue<String>,
    pub email: ResolvedValue<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LintConfig {
    pub min_checkboxes: ResolvedValue<u32>,
}

/// How agents are run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AgentConfig {
    /// The command line of the agent `custom`; only the user's own files count.
    pub command: ResolvedValue<Vec<String>>,
    pub session_s: ResolvedValue<u32>,
    pub idle_s: ResolvedValue<u32>,
    pub grace_s: ResolvedValue<u32>,
}

/// How runs continue.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunConfig {
    pub ladder: ResolvedValue<Vec<LadderRung>>,
}

/// When outgoing traffic raises an alarm.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EgressConfig {
    pub alarm_after: ResolvedValue<ByteSize>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CheckConfig {
    pub timeout_s: ResolvedValue<u32>,
}
