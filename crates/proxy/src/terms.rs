//! On what terms a sandbox is served at its doors.

use std::sync::Arc;

use ralph_core::policy::Policy;

use crate::authority::Authority;
use crate::credential::Credential;
use crate::ledger::{Caps, Ledger};
use crate::outflow::Outflow;
use crate::route::Route;

/// What one sandbox may reach, and what it is lent on the way.
#[derive(Debug, Clone)]
pub struct Terms {
    pub policy: Policy,
    pub routes: Vec<Route>,
    /// Credentials for hosts the policy allows, put in where their stand-ins are sent over TLS.
    pub credentials: Vec<Arc<Credential>>,
    /// Whom the sandbox trusts to be any host; without one nothing is looked into.
    pub authority: Option<Arc<Authority>>,
    /// The account book that calls over the routes are charged to.
    pub ledger: Ledger,
    /// What leaves is counted here, over all sandboxes of a run.
    pub outflow: Outflow,
    /// The run whose policy a person can change; a refusal names the command.
    pub run: Option<String>,
}

impl From<Policy> for Terms {
    fn from(policy: Policy) -> Self {
        // Without routes nothing is ever charged; with a cap of nothing a mistake could not cost anything either.
        let nothing = Caps { cost: Some(ralph_core::money::Micros::ZERO), tokens: Some(0) };
        let ledger = Ledger::new(nothing, ralph_core::money::Micros::ZERO, 0);
        let outflow = Outflow::new(None, 0);
        Self { policy, routes: Vec::new(), credentials: Vec::new(), authority: None, ledger, outflow, run: None }
    }
}

impl Terms {
    /// Every credential that is lent, by route or by host.
    pub fn lent(&self) -> Vec<Arc<Credential>> {
        let mut lent: Vec<Arc<Credential>> = self.credentials.clone();
        for credential in self.routes.iter().filter_map(Route::credential) {
            if !lent.iter().any(|known| Arc::ptr_eq(known, credential)) {
                lent.push(Arc::clone(credential));
            }
        }
        lent
    }
}
