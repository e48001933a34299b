//! Defines what a sandbox is granted: its policy, credentials, model routes and ledger.

use std::sync::Arc;

use ralph_core::policy::Policy;

use crate::credential::ProxyCredential;
use crate::inspect::MitmCa;
use crate::ledger::{Ledger, LedgerCaps};
use crate::model_gateway::ModelRoute;
use crate::sent_bytes_alarm::OutflowMeter;

/// What one sandbox may reach, and which credentials and routes it may use.
#[derive(Debug, Clone)]
pub struct ProxyGrant {
    pub policy: Policy,
    pub routes: Vec<ModelRoute>,
    /// Credentials for hosts that the policy allows, injected where their phantoms are sent over TLS.
    pub credentials: Vec<Arc<ProxyCredential>>,
    /// The CA that the sandbox trusts for any host; without one, no connection is inspected.
    pub authority: Option<Arc<MitmCa>>,
    /// The ledger that calls over the routes are charged to.
    pub ledger: Ledger,
    /// Counts what is sent out, over all sandboxes of a run.
    pub outflow: OutflowMeter,
    /// The run whose policy a person can change; a refusal names the command.
    pub run: Option<String>,
}

impl From<Policy> for ProxyGrant {
    fn from(policy: Policy) -> Self {
        // Without routes nothing is ever charged; a cap of zero makes sure that a mistake costs nothing either.
        let nothing = LedgerCaps { cost: Some(ralph_core::money::MicroUsd::ZERO), tokens: Some(0) };
        let ledger = Ledger::new(nothing, ralph_core::money::MicroUsd::ZERO, 0);
        let outflow = OutflowMeter::new(None, 0);
        Self { policy, routes: Vec::new(), credentials: Vec::new(), authority: None, ledger, outflow, run: None }
    }
}

impl ProxyGrant {
    /// Returns every credential that is granted, by route or by host.
    pub fn all_credentials(&self) -> Vec<Arc<ProxyCredential>> {
        let mut granted: Vec<Arc<ProxyCredential>> = self.credentials.clone();
        for credential in self.routes.iter().filter_map(ModelRoute::credential) {
            if !granted.iter().any(|known| Arc::ptr_eq(known, credential)) {
                granted.push(Arc::clone(credential));
            }
        }
        granted
    }
}
