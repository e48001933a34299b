//! Defines the events that the egress proxy reports, and the observer that receives them.
//!
//! Nothing is written here: the engine turns each [`EgressEvent`] into run events and lines of the audit log.

use std::fmt;
use std::net::IpAddr;
use std::pin::Pin;
use std::time::Duration;

use ralph_core::egress::EgressTarget;
use ralph_core::money::MicroUsd;
use ralph_core::price::TokenUsage;

use crate::meter::GatewayRefusal;

/// What decisions are reported with.
pub use ralph_core::egress::{DecisionReason, RequestSummary};

/// How a connection entered the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EgressEntry {
    /// A tunnel requested by `CONNECT`.
    Connect,
    /// A plain HTTP request in absolute form.
    Http,
    /// A request to one of the sandbox's reverse routes.
    Route,
    Socks,
    /// A connection to a synthetic address.
    Transparent,
    /// A DNS question.
    Dns,
    /// The client was refused before it said what it wanted.
    Unknown,
}

impl EgressEntry {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Http => "http",
            Self::Route => "route",
            Self::Socks => "socks",
            Self::Transparent => "transparent",
            Self::Dns => "dns",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for EgressEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One decision of the policy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressDecision {
    pub entry: EgressEntry,
    /// The canonical host; if there is none, what the client wrote, made safe to print; empty if it wrote nothing.
    pub host: String,
    /// 0 if no port was requested.
    pub port: u16,
    /// The request that was refused; `None` if the decision is about a connection or a name.
    pub request: Option<RequestSummary>,
    pub allowed: bool,
    pub why: DecisionReason,
    /// The address that was checked last: dialled, refused, or given out by DNS.
    pub address: Option<IpAddr>,
}

impl EgressDecision {
    /// Returns the rule that would allow what was refused, if a rule can.
    pub fn suggested_rule(&self) -> Option<String> {
        let target = EgressTarget::new(&self.host, if self.port == 0 { 443 } else { self.port }).ok()?;
        if self.allowed { None } else { self.why.suggested_rule(&target, self.request.as_ref(), self.address) }
    }
}

/// One inspected request, reported at its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressExchange {
    pub entry: EgressEntry,
    pub host: String,
    pub port: u16,
    pub method: String,
    /// Without the query.
    pub path: String,
    /// The status that the client was answered with; `None` if it hung up before.
    pub status: Option<u16>,
    /// Why the proxy answered instead of the host: a refusal of its own, or a host that failed.
    pub refused: Option<Box<GatewayRefusal>>,
    /// Bytes of the bodies, to the host and back.
    pub sent: u64,
    pub received: u64,
    /// The name of the credential that was injected.
    pub credential: Option<String>,
    pub call: Option<ChargedCall>,
}

/// A model call, as it was charged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChargedCall {
    /// The same id as in the event before it was dialled.
    pub id: u64,
    pub route: String,
    pub model: String,
    /// The model that says it answered, if it is not the requested one.
    pub answered_by: Option<String>,
    pub usage: TokenUsage,
    pub cost: MicroUsd,
    pub charge: ChargeBasis,
    /// What the provider reports about its rate limits, header by header.
    pub limits: Vec<(String, String)>,
}

/// The basis on which a call was charged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChargeBasis {
    /// The usage that the provider reported.
    Reported,
    /// The worst case: no usage was reported.
    Worst,
    /// Nothing: the provider refused the call.
    Nothing,
}

impl ChargeBasis {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reported => "reported",
            Self::Worst => "worst",
            Self::Nothing => "nothing",
        }
    }
}

/// An incident that must not happen. It was cut off, unless its kind says otherwise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressAlarm {
    pub what: AlarmKind,
    /// The name of the credential; empty if no credential is concerned.
    pub credential: String,
    pub host: String,
    pub port: u16,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AlarmKind {
    #[error("a phantom credential was sent to a host it is not for")]
    PhantomMisdirected,
    #[error("a revoked phantom credential was used")]
    PhantomRevoked,
    /// It is worth nothing to the model, and cutting every call that repeats it would end an honest session: reported
    /// once.
    #[error("a phantom credential was written into a call to its own model")]
    PhantomInPrompt,
    /// It is removed from the request, and its sender has no other way to see why nothing works: reported once.
    #[error(
        "a phantom credential was sent to its own host where it is not replaced by the real one: use a header such as `Authorization`, `X-Api-Key` or `…-Token`"
    )]
    PhantomMisplaced,
    #[error("an answer contained a real credential")]
    SecretReturned,
    /// Nothing is cut: an upload can be what a run is for. Reported once.
    #[error("the run has sent out more than {}", format_bytes(*.limit))]
    OutflowExceeded { limit: u64 },
}

/// Formats a number of bytes for people, in whole units where possible.
fn format_bytes(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    match units.into_iter().find(|(shift, _)| bytes >= 1 << shift && bytes.is_multiple_of(1 << shift)) {
        Some((shift, unit)) => format!("{} {unit}", bytes >> shift),
        None => format!("{bytes} bytes"),
    }
}

/// A tunnel that was relayed without inspection, reported at its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressTunnel {
    pub entry: EgressEntry,
    pub host: String,
    pub port: u16,
    /// Bytes to the host and back, including those of TLS.
    pub sent: u64,
    pub received: u64,
    pub took: Duration,
}

/// Every event that the egress proxy reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EgressEvent {
    Decision(EgressDecision),
    Exchange(EgressExchange),
    Tunnel(EgressTunnel),
    /// A call is about to be dialled and may cost this much. The exchange that follows says what it did cost.
    CallReserved {
        /// The same id as in the exchange that follows; no two calls of a process share one.
        id: u64,
        route: String,
        model: String,
        cost: MicroUsd,
        tokens: u64,
    },
    Alarm(EgressAlarm),
    /// A call was refused because the budget is spent.
    BudgetSpent {
        route: String,
        model: String,
        why: String,
    },
    /// The listeners were restarted after their tasks had failed.
    Restarted {
        why: String,
    },
}

/// Receives every event. It is called on the path of the connection, so it must not block.
pub trait EgressObserver: fmt::Debug + Send + Sync {
    fn observe(&self, event: EgressEvent);

    /// Is called when a task that serves the listeners has failed, before any connection is cut: whatever fails from
    /// then on may fail because of it. [`EgressEvent::Restarted`] follows when the listeners are served again.
    fn listeners_failed(&self) {}

    /// Persists a call that is about to be dialled ([`EgressEvent::CallReserved`]) so that the record outlives this
    /// process. The error says why that failed, and the call is not made.
    fn persist_call(&self, calling: EgressEvent) -> PersistFuture<'_> {
        self.observe(calling);
        Box::pin(std::future::ready(Ok(())))
    }
}

/// The result of [`EgressObserver::persist_call`].
pub type PersistFuture<'a> = Pin<Box<dyn Future<Output = Result<(), String>> + Send + 'a>>;

#[cfg(test)]
mod tests {
    use ralph_core::egress::IpAddressKind;
    use ralph_core::policy::PolicyMode;

    use super::*;

    #[track_caller]
    fn check(host: &str, port: u16, why: DecisionReason, address: Option<&str>, want: Option<&str>) {
        check_request(host, port, None, why, address, want);
    }

    #[track_caller]
    fn check_request(
        host: &str,
        port: u16,
        request: Option<RequestSummary>,
        why: DecisionReason,
        address: Option<&str>,
        want: Option<&str>,
    ) {
        let (entry, host) = (EgressEntry::Connect, host.to_owned());
        let address = address.map(|address| address.parse().unwrap());
        let decided = EgressDecision { entry, host, port, request, allowed: false, why, address };
        assert_eq!(decided.suggested_rule().as_deref(), want);
        assert_eq!(EgressDecision { allowed: true, ..decided }.suggested_rule(), None);
    }

    #[test]
    fn suggested_rules_would_allow_what_was_refused() {
        check("x.io", 443, DecisionReason::Mode(PolicyMode::Allowlist), None, Some("x.io"));
        check("x.io", 80, DecisionReason::Mode(PolicyMode::Deny), None, Some("x.io:80"));
        check("x.io", 0, DecisionReason::Mode(PolicyMode::Deny), None, Some("x.io"));
        check("x.io", 443, DecisionReason::InternalAddress(IpAddressKind::Private), Some("10.0.0.1"), Some("10.0.0.1"));
        check("x.io", 80, DecisionReason::InternalAddress(IpAddressKind::Loopback), Some("::1"), Some("[::1]:80"));
        check("x.io", 80, DecisionReason::InternalAddress(IpAddressKind::Metadata), Some("169.254.169.254"), None);
        check("x.io", 443, DecisionReason::Denied(Box::new("x.io".parse().unwrap())), None, None);
        check("a b", 443, DecisionReason::Mode(PolicyMode::Deny), None, None);
        check("npm", 443, DecisionReason::Mode(PolicyMode::Deny), None, None);
    }

    #[test]
    fn a_refused_request_suggests_a_rule_for_itself() {
        let push = || Some(RequestSummary::new("POST", "/o/r/git-receive-pack?x=y"));
        let narrow = Some("POST x.io/o/r/git-receive-pack");
        check_request("x.io", 443, push(), DecisionReason::RequestNotAllowed, None, narrow);
        check_request("x.io", 443, push(), DecisionReason::PolicyChanged, None, narrow);
        check_request(
            "x.io",
            80,
            push(),
            DecisionReason::RequestNotAllowed,
            None,
            Some("POST x.io:80/o/r/git-receive-pack"),
        );
        check_request(
            "x.io",
            443,
            Some(RequestSummary::new("GET", "/*")),
            DecisionReason::RequestNotAllowed,
            None,
            None,
        );
        // No rule allows anything of the host yet: a rule for one path of it would be of little use.
        check_request("x.io", 80, push(), DecisionReason::Mode(PolicyMode::Deny), None, Some("x.io:80"));
    }
}
