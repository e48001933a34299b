//! Runs the egress proxies of sandboxes, each with the sandbox's policy and grant, and records all traffic in the audit
//! log.

mod ca_bundle;
mod grant;
mod manager;
mod sandbox_with_proxy_env;

use std::collections::BTreeMap;

use ralph_core::policy::{Policy, PolicyMode};
use ralph_proxy::grant::ProxyGrant;
use ralph_sandbox::SandboxNetwork;

pub use grant::{EgressAvailability, EgressRequest, ModelAccess, SecretGrant, SecretGrantError, check_grantable};
pub(crate) use grant::{SandboxGrant, build_grant};
pub use manager::{EgressLease, EgressManager, EgressReport};
pub(crate) use sandbox_with_proxy_env::hold_lease;

/// The label that carries a sandbox's policy to the process that serves its egress proxy.
const POLICY_LABEL: &str = "ralph.policy";

/// Returns the network a policy needs, and labels the sandbox with the policy. A policy that denies everything needs
/// none.
fn network_for_policy(policy: &Policy, labels: &mut BTreeMap<String, String>) -> SandboxNetwork {
    if policy.mode == PolicyMode::Deny {
        return SandboxNetwork::None;
    }
    let text = serde_json::to_string(policy).expect("strings serialise");
    labels.insert(POLICY_LABEL.to_owned(), text);
    SandboxNetwork::Transparent
}

/// Returns the network a sandbox with this grant needs.
pub(crate) fn network_for_grant(terms: &ProxyGrant, labels: &mut BTreeMap<String, String>) -> SandboxNetwork {
    match network_for_policy(&terms.policy, labels) {
        // A sandbox that may reach only a model needs the proxy's address and nothing more.
        SandboxNetwork::None if !terms.routes.is_empty() => SandboxNetwork::Proxy,
        network => network,
    }
}
