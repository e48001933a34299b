//! The whole config after the layers are merged: every value with its origin.

use serde::Serialize;

use super::origin::Resolved;
use super::units::{Backend, Cpus, Enforcement, Size, Toolchains};
use crate::gutter::Rung;
use crate::money::Micros;
use crate::policy::{Mode, Policy, Rule};

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Config {
    pub sandbox: Sandbox,
    pub budget: Budget,
    pub model: Models,
    pub git: Git,
    pub lint: Lint,
    pub check: Check,
    pub agent: Agent,
    pub run: Run,
    pub egress: Egress,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sandbox {
    pub backend: Resolved<Backend>,
    pub image: Resolved<Option<String>>,
    pub reuse_container: Resolved<bool>,
    pub use_local_image: Resolved<bool>,
    pub toolchains: Resolved<Toolchains>,
    pub network: Network,
    pub resources: Resources,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Network {
    pub policy: Resolved<Mode>,
    pub allowed: Resolved<Vec<Rule>>,
    pub denied: Resolved<Vec<Rule>>,
    pub enforcement: Resolved<Enforcement>,
}

impl Network {
    /// Returns the policy the proxy holds a sandbox to.
    pub fn policy(&self) -> Policy {
        Policy { mode: self.policy.value, allow: self.allowed.value.clone(), deny: self.denied.value.clone() }
    }
}

/// `None` leaves it to the backend.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Resources {
    pub memory: Resolved<Option<Size>>,
    pub cpus: Resolved<Option<Cpus>>,
    pub disk: Resolved<Option<Size>>,
    pub pids: Resolved<u32>,
    pub timeout_minutes: Resolved<u32>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Budget {
    pub max_cost: Resolved<Micros>,
    pub max_iterations: Resolved<u32>,
    pub max_wall_time_minutes: Resolved<u32>,
    /// `None` is no cap of its own.
    pub max_tokens: Resolved<Option<u64>>,
    pub max_consecutive_gutter: Resolved<u32>,
}

/// Names of model profiles.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Models {
    pub default: Resolved<String>,
    /// `None`: a run that goes in circles keeps its profile.
    pub fallback: Resolved<Option<String>>,
    /// `None`: the diagnosis is made by the fallback, else by the run's own profile.
    pub doctor: Resolved<Option<String>>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Git {
    pub name: Resolved<String>,
    pub email: Resolved<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Lint {
    pub min_checkboxes: Resolved<u32>,
}

/// How agents are run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Agent {
    /// The command line of the agent `custom`; only the user's own files count.
    pub command: Resolved<Vec<String>>,
    pub session_s: Resolved<u32>,
    pub idle_s: Resolved<u32>,
    pub grace_s: Resolved<u32>,
}

/// How runs go on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Run {
    pub ladder: Resolved<Vec<Rung>>,
}

/// What is noticed about what leaves.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Egress {
    pub alarm_after: Resolved<Size>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Check {
    pub timeout_s: Resolved<u32>,
}
