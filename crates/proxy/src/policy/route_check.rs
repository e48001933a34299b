//! Checks one request to the endpoint of a model route: it needs no rule that allows it, and none may deny it.

use std::sync::Arc;

use hyper::Method;
use ralph_core::policy::{Policy, PolicyRule, matching_deny_rule};
use tokio::sync::watch;

use crate::model_gateway::RouteUpstream;

/// One request to the endpoint of a route.
#[derive(Debug)]
pub(crate) struct RoutePolicyCheck {
    policy: watch::Receiver<Arc<Policy>>,
    upstream: Arc<RouteUpstream>,
    method: Method,
    path: String,
}

impl RoutePolicyCheck {
    pub(super) fn new(
        policy: watch::Receiver<Arc<Policy>>,
        upstream: Arc<RouteUpstream>,
        method: Method,
        path: String,
    ) -> Self {
        Self { policy, upstream, method, path }
    }

    /// Returns the rule that currently denies the request.
    pub(crate) fn denying_rule(&mut self) -> Option<PolicyRule> {
        let policy = Arc::clone(&self.policy.borrow_and_update());
        let (target, request) = (&self.upstream.target, Some((self.method.as_str(), self.path.as_str())));
        matching_deny_rule(&policy, target.host(), target.port(), request).cloned()
    }

    /// Returns the rule that has begun to deny the request since the last check.
    pub(crate) fn newly_denying_rule(&mut self) -> Option<PolicyRule> {
        // Without a sender the sandbox has ended, and the caller ends with it.
        if self.policy.has_changed().unwrap_or(false) { self.denying_rule() } else { None }
    }

    /// Waits until a rule denies the request.
    pub(crate) async fn wait_denied(mut self) -> PolicyRule {
        loop {
            if self.policy.changed().await.is_err() {
                // The sandbox has ended, and the request ends with it.
                return std::future::pending().await;
            }
            if let Some(rule) = self.denying_rule() {
                return rule;
            }
        }
    }
}
