//! What the sandbox at work may reach and is lent, as long as this process holds the run.

use ralph_core::event::PinnedProfile;

use super::runner::Runner;
use crate::egress::{self, BadLoan, Doors, Lent, Loan};
use crate::error::Error;
use crate::host::Host;

impl Runner {
    /// Agrees on the way out of the sandbox, before it is made or opened.
    pub(super) fn agree(&mut self, sandbox: &str) -> Result<Lent, Error> {
        let state = self.state();
        let lend = |text: &String| {
            text.parse().map_err(|error: BadLoan| Error::Lend { what: text.clone(), why: error.to_string() })
        };
        let loans: Vec<Loan> = state.started.lent.iter().map(lend).collect::<Result<_, _>>()?;
        let policy = state.policy().clone();
        // The engine of actions asks its models itself; an agent asks from inside.
        let profiles = state.started.profiles.clone();
        let asked: Vec<&PinnedProfile> = match &state.started.agent {
            Some(_) => std::iter::once(&profiles.default).chain(&profiles.fallback).collect(),
            None => Vec::new(),
        };
        let lent = egress::lend(&self.host, sandbox, policy, &asked, &loans, self.ledger.clone(), Doors::Always)?;
        let lent = lent.with_alarm(self.state().started.alarm_after);
        self.ways = lent.ways().to_vec();
        #[cfg(target_os = "linux")]
        {
            self.pass = Some(self.host.egress().agree(sandbox, lent.terms.clone()));
        }
        Ok(lent)
    }

    /// Holds the sandbox at work to the policy in force, which is a fold of the events: a resumed run has it already.
    pub(super) fn policy_changed(&mut self) {
        #[cfg(target_os = "linux")]
        if let Some(pass) = &self.pass {
            pass.set_policy(self.state().policy().clone());
        }
    }

    /// Returns how often whoever serves the way out has died so far.
    pub(super) fn restarts(&self) -> u64 {
        #[cfg(target_os = "linux")]
        return self.pass.as_ref().map_or(0, crate::egress::Pass::restarts);
        #[cfg(not(target_os = "linux"))]
        return 0;
    }
}

/// The same for a sandbox by its name: one that is made for a proof.
pub(crate) fn restarts(host: &Host, sandbox: &str) -> u64 {
    #[cfg(target_os = "linux")]
    return host.egress().restarts(sandbox);
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (host, sandbox);
        0
    }
}
