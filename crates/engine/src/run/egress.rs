//! What the sandbox at work may reach and is lent, as long as this process holds the run.

use ralph_core::event::PinnedProfile;

use super::runner::Runner;
use crate::egress::{self, EgressAvailability, SandboxGrant, SecretGrant, SecretGrantError};
use crate::error::Error;
use crate::host::HostContext;

impl Runner {
    /// Agrees on the way out of the sandbox, before it is made or opened.
    pub(super) fn lease_egress(&mut self, sandbox: &str) -> Result<SandboxGrant, Error> {
        let state = self.state();
        let lend = |text: &String| {
            text.parse().map_err(|error: SecretGrantError| Error::Grant { what: text.clone(), why: error.to_string() })
        };
        let loans: Vec<SecretGrant> = state.started.lent.iter().map(lend).collect::<Result<_, _>>()?;
        let policy = state.policy().clone();
        // The engine of actions asks its models itself; an agent asks from inside.
        let profiles = state.started.profiles.clone();
        let asked: Vec<&PinnedProfile> = match &state.started.agent {
            Some(_) => std::iter::once(&profiles.default).chain(&profiles.fallback).collect(),
            None => Vec::new(),
        };
        let lent = egress::build_grant(
            &self.host,
            sandbox,
            policy,
            &asked,
            &loans,
            self.ledger.clone(),
            EgressAvailability::Always,
        )?;
        let lent = lent.with_outflow_alarm(self.state().started.alarm_after);
        self.model_access = lent.model_access().to_vec();
        #[cfg(target_os = "linux")]
        {
            self.lease = Some(self.host.egress().lease(sandbox, lent.terms.clone()));
        }
        Ok(lent)
    }

    /// Holds the sandbox at work to the policy in force, which is a fold of the events: a resumed run has it already.
    pub(super) fn apply_policy(&mut self) {
        #[cfg(target_os = "linux")]
        if let Some(pass) = &self.lease {
            pass.set_policy(self.state().policy().clone());
        }
    }

    /// Returns how often whoever serves the way out has died so far.
    pub(super) fn egress_restarts(&self) -> u64 {
        #[cfg(target_os = "linux")]
        return self.lease.as_ref().map_or(0, crate::egress::EgressLease::restarts);
        #[cfg(not(target_os = "linux"))]
        return 0;
    }
}

/// The same for a sandbox by its name: one that is made for a proof.
pub(crate) fn egress_restarts(host: &HostContext, sandbox: &str) -> u64 {
    #[cfg(target_os = "linux")]
    return host.egress().restarts(sandbox);
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (host, sandbox);
        0
    }
}
