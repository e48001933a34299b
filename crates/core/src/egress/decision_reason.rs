//! Defines why the egress proxy allowed, refused or cut a connection, with the text shown to users and in audit logs.

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
    /// The rule that allows it.
    #[error("rule `{0}`")]
    Rule(Box<PolicyRule>),
    /// The rule that denies it, which no other rule overrides.
    #[error("it is denied by rule `{0}` of the network policy")]
    Denied(Box<PolicyRule>),
    /// No rule matches.
    #[error("no rule names it, and the network policy is `{0}`")]
    Mode(PolicyMode),
    /// The host is allowed for other requests only.
    #[error("the rules for this host allow other requests, and none allows this one")]
    RequestNotAllowed,
    #[error(transparent)]
    Target(#[from] BadTarget),
    /// The rules are about requests, and a tunnel hides its requests.
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
    /// A phantom was sent to the wrong host.
    #[error("the request carries a phantom credential that is not for this host")]
    PhantomMisdirected,
    /// The TLS hello in a tunnel to one name asked for another.
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
    #[error("the client took too long to send its request")]
    ClientTimeout,
    #[error("the network policy changed")]
    PolicyChanged,
}

impl DecisionReason {
    /// Returns the rule that would allow what was refused, if one can.
    pub fn suggested_rule(
        &self,
        target: &EgressTarget,
        request: Option<&RequestSummary>,
        address: Option<IpAddr>,
    ) -> Option<String> {
        let rule = match (self, request) {
            // A rule for the whole host would allow more than the existing rules about its requests intend.
            (Self::RequestNotAllowed | Self::PolicyChanged, Some(RequestSummary { method, path })) => {
                return rule_for_request(&target.allow_rule(), method, path).map(|rule| rule.to_string());
            }
            (Self::Mode(_) | Self::PolicyChanged, _) => target.allow_rule(),
            // Only a rule for the address itself allows an internal address, never a rule for a name.
            (Self::InternalAddress(kind), _) if kind.can_be_allowed() => {
                EgressTarget::from_address(address?, target.port()).allow_rule()
            }
            _ => return None,
        };
        // A single word is no rule, but may be the name of a preset.
        rule.parse::<PolicyRule>().is_ok().then_some(rule)
    }
}

fn sni_text(name: Option<&str>) -> String {
    name.map_or_else(|| "names no host".to_owned(), |name| format!("names `{name}`"))
}
