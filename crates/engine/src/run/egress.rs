//! What the sandbox at work may reach and is granted, as long as this process holds the run.

use ralph_sandbox::Sandbox;

use super::runner::Runner;
use crate::egress::{EgressAvailability, EgressLease, EgressRequest, SecretGrantError};
use crate::error::Error;
use crate::sandboxes::GrantedSandbox;

impl Runner {
    /// Returns what the sandbox at work asks of the egress proxy.
    pub(super) fn egress_request(&self) -> Result<EgressRequest, Error> {
        let state = self.state();
        let parse = |text: &String| {
            text.parse().map_err(|error: SecretGrantError| Error::Grant { what: text.clone(), why: error.to_string() })
        };
        // The engine of actions asks its models itself; an agent asks from inside.
        let profiles = &state.started.profiles;
        let profiles = match &state.started.agent {
            Some(_) => std::iter::once(&profiles.default).chain(&profiles.fallback).cloned().collect(),
            None => Vec::new(),
        };
        Ok(EgressRequest {
            profiles,
            secrets: state.started.lent.iter().map(parse).collect::<Result<_, _>>()?,
            ledger: self.ledger.clone(),
            availability: EgressAvailability::Always,
            alarm_after: state.started.alarm_after,
            ..EgressRequest::from(state.policy().clone())
        })
    }

    /// Keeps what was granted to the sandbox at work, and returns the sandbox.
    pub(super) fn hold_grant(&mut self, granted: GrantedSandbox) -> std::sync::Arc<dyn Sandbox> {
        self.lease = granted.lease;
        self.model_access = granted.model_access;
        granted.sandbox
    }

    /// Holds the sandbox at work to the policy in force, which is a fold of the events: a resumed run has it already.
    pub(super) fn apply_policy(&mut self) {
        if let Some(lease) = &self.lease {
            lease.set_policy(self.state().policy().clone());
        }
    }

    /// Returns how often the egress proxy has died so far.
    pub(super) fn egress_restarts(&self) -> u64 {
        self.lease.as_ref().map_or(0, EgressLease::restarts)
    }
}
