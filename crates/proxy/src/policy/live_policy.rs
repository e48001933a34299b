//! Holds the network policy of one sandbox, which a person can change while connections are open.

use std::sync::Arc;

use hyper::Method;
use ralph_core::egress::{AccessRequest, DecisionReason, EgressTarget, decide_name, decide_target};
use ralph_core::policy::{Policy, PolicyMode, decide_connection};
use tokio::sync::watch;

use super::connection_check::ConnectionPolicyCheck;
use super::route_check::RoutePolicyCheck;
use crate::model_gateway::RouteUpstream;

/// The policy in force, and the decisions made by it.
#[derive(Debug)]
pub(crate) struct PolicyCheck {
    current: watch::Sender<Arc<Policy>>,
}

impl PolicyCheck {
    pub(crate) fn new(policy: Policy) -> Self {
        Self { current: watch::Sender::new(Arc::new(policy)) }
    }

    /// Replaces the policy. Everything that waits for a permit to be revoked is notified.
    pub(crate) fn replace(&self, policy: Arc<Policy>) {
        self.current.send_replace(policy);
    }

    pub(crate) fn mode(&self) -> PolicyMode {
        self.current.borrow().mode
    }

    /// Says whether the rules for a target are about single requests, which can only be decided by inspecting them.
    pub(crate) fn needs_inspection(&self, target: &EgressTarget) -> bool {
        decide_connection(&self.current.borrow(), target.host(), target.port()).inspect
    }

    /// Decides by name only.
    pub(crate) fn decide_target(
        &self,
        target: &EgressTarget,
        access: &AccessRequest,
    ) -> Result<DecisionReason, DecisionReason> {
        let policy = Arc::clone(&self.current.borrow());
        decide_target(&policy, target, access)
    }

    /// Decides about a name that was requested without a port.
    pub(crate) fn decide_name(&self, host: &str) -> Result<DecisionReason, DecisionReason> {
        let policy = Arc::clone(&self.current.borrow());
        decide_name(&policy, host)
    }

    /// Starts the check of one connection to a target.
    pub(crate) fn connection_check<'a>(
        &self,
        target: &'a EgressTarget,
        access: &'a AccessRequest,
    ) -> ConnectionPolicyCheck<'a> {
        ConnectionPolicyCheck::new(self.current.subscribe(), target, access)
    }

    /// Starts the check of one request to the endpoint of a route.
    pub(crate) fn route_check(&self, upstream: &Arc<RouteUpstream>, method: &Method, path: &str) -> RoutePolicyCheck {
        RoutePolicyCheck::new(self.current.subscribe(), Arc::clone(upstream), method.clone(), path.to_owned())
    }
}
