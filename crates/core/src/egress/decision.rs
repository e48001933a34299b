//! Decides whether a target may be reached: first by its name, then by each of its addresses.
//!
//! The rules themselves are matched by [`crate::policy`].

use core::net::IpAddr;

use super::address::IpAddressKind;
use super::decision_reason::{DecisionReason, RequestSummary};
use super::target::{EgressTarget, HTTP_PORT, HTTPS_PORT};
use crate::policy::{HostPattern, Policy, PolicyMode, PolicyRule, decide_connection, decide_request};

/// What a client asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AccessRequest {
    /// A connection whose requests will be decided one by one.
    Connection,
    /// A connection that the proxy passes on unread.
    Tunnel,
    Request {
        method: String,
        path: String,
    },
}

impl AccessRequest {
    /// Returns the method and path, if a single request is asked for.
    pub fn request_summary(&self) -> Option<RequestSummary> {
        match self {
            Self::Request { method, path } => Some(RequestSummary::new(method, path)),
            Self::Connection | Self::Tunnel => None,
        }
    }
}

/// Decides about a target by its name, before any DNS. Both answers give their reason.
pub fn decide_target(
    policy: &Policy,
    target: &EgressTarget,
    ask: &AccessRequest,
) -> Result<DecisionReason, DecisionReason> {
    let decision = match ask {
        AccessRequest::Request { method, path } => decide_request(policy, target.host(), target.port(), method, path),
        AccessRequest::Connection | AccessRequest::Tunnel => decide_connection(policy, target.host(), target.port()),
    };
    match (decision.allowed, decision.rule) {
        (true, _) if decision.inspect && *ask == AccessRequest::Tunnel => Err(DecisionReason::NeedsInspection),
        (true, Some(rule)) => Ok(DecisionReason::Rule(Box::new(rule))),
        (true, None) => Ok(DecisionReason::Mode(policy.mode)),
        (false, Some(rule)) => Err(DecisionReason::Denied(Box::new(rule))),
        (false, None)
            if matches!(ask, AccessRequest::Request { .. })
                && decide_connection(policy, target.host(), target.port()).allowed =>
        {
            Err(DecisionReason::RequestNotAllowed)
        }
        (false, None) => Err(DecisionReason::Mode(policy.mode)),
    }
}

/// Decides about one address of an allowed target. An internal address needs a rule that names exactly it.
pub fn decide_address(
    policy: &Policy,
    kind: Option<IpAddressKind>,
    address: IpAddr,
    port: u16,
) -> Result<(), IpAddressKind> {
    let Some(kind) = kind else { return Ok(()) };
    let literal = EgressTarget::from_address(address, port);
    let listed = policy.allow.iter().any(|rule| {
        matches!(rule.host(), HostPattern::Exact(host) if host == literal.host())
            && rule.port().unwrap_or(HTTPS_PORT) == port
            && !rule.needs_request()
    });
    let allowed = listed && kind.can_be_allowed() && decide_target(policy, &literal, &AccessRequest::Tunnel).is_ok();
    if allowed { Ok(()) } else { Err(kind) }
}

/// Returns whether the name of a host always means this machine.
pub fn is_localhost(host: &str) -> bool {
    host == "localhost" || host.ends_with(".localhost")
}

/// Decides about a name without a port: it is allowed if any of its ports is.
pub fn decide_name(policy: &Policy, host: &str) -> Result<DecisionReason, DecisionReason> {
    // No rule can name port 0, so it means "any other port" when the policy is open.
    let other = (policy.mode == PolicyMode::Open).then_some(0);
    let ports = [HTTPS_PORT, HTTP_PORT].into_iter().chain(policy.allow.iter().filter_map(PolicyRule::port));
    let mut refused = DecisionReason::Mode(policy.mode);
    for port in ports.chain(other) {
        let decision = decide_connection(policy, host, port);
        match (decision.allowed, decision.rule) {
            (true, rule) => {
                return Ok(rule.map_or(DecisionReason::Mode(policy.mode), |rule| DecisionReason::Rule(Box::new(rule))));
            }
            (false, Some(rule)) => refused = DecisionReason::Denied(Box::new(rule)),
            (false, None) => (),
        }
    }
    Err(refused)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::egress::address;

    fn policy(mode: PolicyMode, allow: &[&str], deny: &[&str]) -> Policy {
        Policy::parse(mode, allow, deny).unwrap()
    }

    #[track_caller]
    fn check(policy: &Policy, target: &str, ask: &AccessRequest, want: Result<&str, &str>) {
        let got = decide_target(policy, &EgressTarget::parse_authority(target, None).unwrap(), ask);
        let got = got.map(|why| why.to_string()).map_err(|why| why.to_string());
        assert_eq!(got.as_deref().map_err(String::as_str), want, "{target}");
    }

    #[test]
    fn targets_are_decided_by_name() {
        let get = AccessRequest::Request { method: "GET".to_owned(), path: "/a".to_owned() };
        let some = policy(PolicyMode::Allowlist, &["x.io", "GET y.io/a", "z.io:80"], &["bad.io"]);
        let no_rule = "no rule names it, and the network policy is `allowlist`";
        check(&some, "x.io:443", &AccessRequest::Tunnel, Ok("rule `x.io`"));
        check(&some, "x.io:80", &AccessRequest::Tunnel, Err(no_rule));
        check(&some, "bad.io:443", &AccessRequest::Tunnel, Err("it is denied by rule `bad.io` of the network policy"));
        check(
            &some,
            "y.io:443",
            &AccessRequest::Tunnel,
            Err("its rules are about single requests, which cannot be seen inside a tunnel"),
        );
        check(&some, "y.io:443", &AccessRequest::Connection, Ok("rule `GET y.io/a`"));
        check(&some, "y.io:443", &get, Ok("rule `GET y.io/a`"));
        check(&some, "z.io:80", &get, Ok("rule `z.io:80`"));
        let post = AccessRequest::Request { method: "POST".to_owned(), path: "/a".to_owned() };
        let other = "the rules for this host allow other requests, and none allows this one";
        check(&some, "y.io:443", &post, Err(other));
        check(&some, "y.io:80", &post, Err(no_rule));
        let none = Policy { mode: PolicyMode::Deny, ..some };
        check(&none, "x.io:443", &AccessRequest::Tunnel, Err("no rule names it, and the network policy is `deny`"));
    }

    #[test]
    fn internal_addresses_need_their_own_rule() {
        #[track_caller]
        fn check(policy: &Policy, address: &str, port: u16, want: bool) {
            let address = address.parse().unwrap();
            assert_eq!(decide_address(policy, address::kind(address), address, port).is_ok(), want, "{address}:{port}");
        }
        let rules = ["10.0.0.1:5432", "[::1]:80", "169.254.169.254:80", "GET 10.0.0.2/a"];
        let some = policy(PolicyMode::Allowlist, &rules, &[]);
        check(&some, "1.1.1.1", 443, true);
        check(&some, "10.0.0.1", 5432, true);
        check(&some, "::ffff:10.0.0.1", 5432, true);
        check(&some, "10.0.0.1", 443, false);
        check(&some, "10.0.0.2", 443, false);
        check(&some, "::1", 80, true);
        check(&some, "169.254.169.254", 80, false);
        check(&policy(PolicyMode::Open, &[], &[]), "10.0.0.1", 443, false);
        check(&policy(PolicyMode::Open, &["10.0.0.1"], &[]), "10.0.0.1", 443, true);
        check(&policy(PolicyMode::Allowlist, &["10.0.0.1"], &["10.0.0.1"]), "10.0.0.1", 443, false);
        check(&policy(PolicyMode::Deny, &["10.0.0.1"], &[]), "10.0.0.1", 443, false);
    }

    #[test]
    fn names_without_a_port_are_decided() {
        #[track_caller]
        fn check(policy: &Policy, host: &str, want: bool) {
            assert_eq!(decide_name(policy, host).is_ok(), want, "{host}");
        }
        let some = policy(PolicyMode::Allowlist, &["x.io:8443", "GET y.io/a", "*.z.io"], &["bad.z.io"]);
        for (host, want) in
            [("x.io", true), ("y.io", true), ("a.z.io", true), ("z.io", false), ("bad.z.io", false), ("v.io", false)]
        {
            check(&some, host, want);
        }
        let open = policy(PolicyMode::Open, &[], &["bad.io", "half.io:443", "half.io:80"]);
        check(&open, "x.io", true);
        check(&open, "half.io", true);
        check(&open, "bad.io", false);
        check(&policy(PolicyMode::Deny, &["x.io"], &[]), "x.io", false);
    }
}
