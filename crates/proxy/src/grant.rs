//! On what terms a sandbox is served at its doors.

use std::sync::Arc;

use ralph_core::policy::Policy;

use crate::credential::ProxyCredential;
use crate::inspect::MitmCa;
use crate::ledger::{Ledger, LedgerCaps};
use crate::model_gateway::ModelRoute;
use crate::outflow::OutflowMeter;

/// What one sandbox may reach, and what it is lent on the way.
#[derive(Debug, Clone)]
pub struct ProxyGrant {
    pub policy: Policy,
    pub routes: Vec<ModelRoute>,
    /// Credentials for hosts the policy allows, put in where their stand-ins are sent over TLS.
    pub credentials: Vec<Arc<ProxyCredential>>,
    /// Whom the sandbox trusts to be any host; without one nothing is looked into.
    pub authority: Option<Arc<MitmCa>>,
    /// The account book that calls over the routes are charged to.
    pub ledger: Ledger,
    /// What leaves is counted here, over all sandboxes of a run.
    pub outflow: OutflowMeter,
    /// The run whose policy a person can change; a refusal names the command.
    pub run: Option<String>,
}

impl From<Policy> for ProxyGrant {
    fn from(policy: Policy) -> Self {
        // Without routes nothing is ever charged; with a cap of nothing a mistake could not cost anything either.
        let nothing = LedgerCaps { cost: Some(ralph_core::money::MicroUsd::ZERO), tokens: Some(0) };
        let ledger = Ledger::new(nothing, ralph_core::money::MicroUsd::ZERO, 0);
        let outflow = OutflowMeter::new(None, 0);
        Self { policy, routes: Vec::new(), credentials: Vec::new(), authority: None, ledger, outflow, run: None }
    }
}

impl ProxyGrant {
    /// Every credential that is lent, by route or by host.
    pub fn all_credentials(&self) -> Vec<Arc<ProxyCredential>> {
        let mut lent: Vec<Arc<ProxyCredential>> = self.credentials.clone();
        for credential in self.routes.iter().filter_map(ModelRoute::credential) {
            if !lent.iter().any(|known| Arc::ptr_eq(known, credential)) {
                lent.push(Arc::clone(credential));
            }
        }
        lent
    }
}
