//! Puts the way out at the doors of sandboxes: with a policy, with what the sandbox is lent, and with a book in which
//! everything is written down.

mod ca_bundle;
mod env_sandbox;
mod grant;
mod manager;

use std::collections::BTreeMap;

use ralph_core::policy::{Policy, PolicyMode};
use ralph_proxy::grant::ProxyGrant;
use ralph_sandbox::SandboxNetwork;

pub(crate) use env_sandbox::hold_lease;
pub use grant::{EgressAvailability, EgressRequest, ModelAccess, SecretGrant, SecretGrantError, check_grantable};
pub(crate) use grant::{SandboxGrant, build_grant};
pub use manager::{EgressLease, EgressManager, EgressReport};

/// The label that tells a sandbox's policy to whoever stands at its doors.
const POLICY_LABEL: &str = "ralph.policy";

/// Returns which doors a policy needs, and labels the sandbox with it. A run that may talk to nobody has no doors.
fn network_for_policy(policy: &Policy, labels: &mut BTreeMap<String, String>) -> SandboxNetwork {
    if policy.mode == PolicyMode::Deny {
        return SandboxNetwork::None;
    }
    let text = serde_json::to_string(policy).expect("strings serialise");
    labels.insert(POLICY_LABEL.to_owned(), text);
    SandboxNetwork::Transparent
}

/// Returns which doors a sandbox on these terms needs.
pub(crate) fn network_for_grant(terms: &ProxyGrant, labels: &mut BTreeMap<String, String>) -> SandboxNetwork {
    match network_for_policy(&terms.policy, labels) {
        // Whoever may reach nothing but a model needs to be told where it is, and nothing more.
        SandboxNetwork::None if !terms.routes.is_empty() => SandboxNetwork::Proxy,
        network => network,
    }
}
