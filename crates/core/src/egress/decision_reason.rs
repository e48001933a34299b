//! Why the egress proxy allowed, refused or cut something, in the words that people and audit logs read.

use core::net::IpAddr;

use super::address::IpAddressKind;
use super::target::{BadTarget, EgressTarget};
use crate::policy::{PolicyMode, PolicyRule, rule_for_request};

/// The request that a decision was about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestSummary {
    pub method: String,
    /// Without the query.
    pub path: String,
}

impl RequestSummary {
    pub fn new(method: &str, path: &str) -> Self {
        let path = path.split(['?', '#']).next().unwrap_or_default();
        Self { method: method.to_owned(), path: path.to_owned() }
    }
}

/// Why something was allowed, refused or cut.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecisionReason {
    /// What allows it.
    #[error("rule `{0}`")]
    Rule(Box<PolicyRule>),
    /// What no other rule overrules.
    #[error("it is denied by rule `{0}` of the network policy")]
    Denied(Box<PolicyRule>),
    /// No rule spoke.
    #[error("no rule names it, and the network policy is `{0}`")]
    Mode(PolicyMode),
    /// The host may be asked for something else.
    #[error("the rules for this host allow other requests, and none allows this one")]
    RequestNotAllowed,
    #[error(transparent)]
    Target(#[from] BadTarget),
    /// Only a request can be judged, and a tunnel hides its requests.
    #[error("its rules are about single requests, which cannot be seen inside a tunnel")]
    NeedsInspection,
    #[error("the name has no address")]
    Unresolved,
    #[error("its address is {0}")]
    InternalAddress(IpAddressKind),
    #[error("the host does not answer")]
    Unreachable,
    #[error("its certificate could not be verified")]
    Untrusted,
    /// A stand-in for a credential was on its way to the wrong host.
    #[error("the request carries a stand-in for a credential that is not for this host")]
    PhantomMisdirected,
    /// A tunnel to one name asked for another.
    #[error("the TLS hello {}", sni_text(.0.as_deref()))]
    SniMismatch(Option<String>),
    #[error("port 443 carries only TLS")]
    NotTls,
    #[error("the `Host` header does not name the same host, or not exactly once")]
    HostMismatch,
    #[error("the address was not given out for a name")]
    UnassignedAddress,
    #[error("the request is not well formed: {0}")]
    Malformed(&'static str),
    #[error("too many connections at the same time")]
    TooManyConnections,
    #[error("the client took too long to say what it wants")]
    ClientTimeout,
    #[error("the network policy changed")]
    PolicyChanged,
}

impl DecisionReason {
    /// Returns the rule that would allow what was refused, where one can.
    pub fn suggested_rule(
        &self,
        target: &EgressTarget,
        request: Option<&RequestSummary>,
        address: Option<IpAddr>,
    ) -> Option<String> {
        let rule = match (self, request) {
            // A rule for the whole host would allow more than those about its requests meant to.
            (Self::RequestNotAllowed | Self::PolicyChanged, Some(RequestSummary { method, path })) => {
                return rule_for_request(&target.allow_rule(), method, path).map(|rule| rule.to_string());
            }
            (Self::Mode(_) | Self::PolicyChanged, _) => target.allow_rule(),
            // Only the address itself opens an inner address, never a name.
            (Self::InternalAddress(kind), _) if kind.can_be_allowed() => {
                EgressTarget::from_address(address?, target.port()).allow_rule()
            }
            _ => return None,
        };
        // A lone word is no rule, but may be the name of a preset.
        rule.parse::<PolicyRule>().is_ok().then_some(rule)
    }
}

fn sni_text(name: Option<&str>) -> String {
    name.map_or_else(|| "names no host".to_owned(), |name| format!("names `{name}`"))
}
