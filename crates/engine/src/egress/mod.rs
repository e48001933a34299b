//! Puts the way out at the doors of sandboxes: with a policy, with what the sandbox is lent, and with a book in which
//! everything is written down.

mod dressed;
#[cfg(target_os = "linux")]
mod keeper;
mod lend;
mod roots;

use std::collections::BTreeMap;

use ralph_core::policy::{Mode, Policy};
use ralph_proxy::terms::Terms;
use ralph_sandbox::Network;

#[cfg(target_os = "linux")]
pub use keeper::{Egress, Heard, Pass};
pub use lend::{BadLoan, Doors, Lent, Loan, Way, lend, lendable};

/// The label that tells a sandbox's policy to whoever stands at its doors.
const POLICY: &str = "ralph.policy";

/// Where a sandbox finds the way out.
const DOOR: &str = "http://127.0.0.1:3128";

/// Returns which doors a policy needs, and labels the sandbox with it. A run that may talk to nobody has no doors.
pub fn network(policy: &Policy, labels: &mut BTreeMap<String, String>) -> Network {
    if policy.mode == Mode::Deny {
        return Network::None;
    }
    let text = serde_json::to_string(policy).expect("strings serialise");
    labels.insert(POLICY.to_owned(), text);
    Network::Transparent
}

/// Returns which doors a sandbox on these terms needs.
pub fn network_on(terms: &Terms, labels: &mut BTreeMap<String, String>) -> Network {
    match network(&terms.policy, labels) {
        // Whoever may reach nothing but a model needs to be told where it is, and nothing more.
        Network::None if !terms.routes.is_empty() => Network::Proxy,
        network => network,
    }
}
