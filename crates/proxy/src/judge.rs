//! The judgement about one target: first its name, then each of its addresses.
//!
//! Pure: the rules themselves are judged by `ralph_core::policy`.

use std::net::IpAddr;

use ralph_core::policy::{Mode, Pattern, Policy, decide, decide_request};

use crate::address::{self, Kind};
use crate::notice::{Requested, Why};
use crate::target::{HTTP, HTTPS, Target};

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ask {
    /// A connection whose requests will be asked for one by one.
    Connection,
    /// A connection that nobody looks into.
    Tunnel,
    Request {
        method: String,
        path: String,
    },
}

impl Ask {
    /// Returns the request that is asked for.
    pub(crate) fn request(&self) -> Option<Requested> {
        match self {
            Self::Request { method, path } => Some(Requested::new(method, path)),
            Self::Connection | Self::Tunnel => None,
        }
    }
}

/// Judges a target by its name, before any DNS. Both answers say what they rest on.
pub(crate) fn judge(policy: &Policy, target: &Target, ask: &Ask) -> Result<Why, Why> {
    let decision = match ask {
        Ask::Request { method, path } => decide_request(policy, target.host(), target.port(), method, path),
        Ask::Connection | Ask::Tunnel => decide(policy, target.host(), target.port()),
    };
    match (decision.allowed, decision.rule) {
        (true, _) if decision.inspect && *ask == Ask::Tunnel => Err(Why::Inspect),
        (true, Some(rule)) => Ok(Why::Rule(Box::new(rule))),
        (true, None) => Ok(Why::Mode(policy.mode)),
        (false, Some(rule)) => Err(Why::Denied(Box::new(rule))),
        (false, None) if matches!(ask, Ask::Request { .. }) && decide(policy, target.host(), target.port()).allowed => {
            Err(Why::Request)
        }
        (false, None) => Err(Why::Mode(policy.mode)),
    }
}

/// Judges one address of an allowed target. An inner address needs a rule that names it and no other.
pub(crate) fn admit(policy: &Policy, kind: Option<Kind>, address: IpAddr, port: u16) -> Result<(), Kind> {
    let Some(kind) = kind else { return Ok(()) };
    let literal = Target::address(address, port);
    let listed = policy.allow.iter().any(|rule| {
        matches!(rule.host(), Pattern::Exact(host) if host == literal.host())
            && rule.port().unwrap_or(HTTPS) == port
            && !rule.needs_request()
    });
    let allowed = listed && kind.may_be_listed() && judge(policy, &literal, &Ask::Tunnel).is_ok();
    if allowed { Ok(()) } else { Err(kind) }
}

/// Returns what kind of inner address a target has, if that is what keeps it from being reached: an address, or a name that
/// never means another machine. What other names mean is not known before they are looked up.
pub fn kept_inside(policy: &Policy, target: &Target) -> Option<Kind> {
    let address = target.literal().or_else(|| is_localhost(target.host()).then_some(IpAddr::from([127, 0, 0, 1])))?;
    admit(policy, address::kind_here(address), address, target.port()).err()
}

/// Says whether a host is this machine by its very name.
pub fn is_localhost(host: &str) -> bool {
    host == "localhost" || host.ends_with(".localhost")
}

/// Judges a name that was asked for without a port: it has an address if it may be reached on any port.
pub(crate) fn judge_name(policy: &Policy, host: &str) -> Result<Why, Why> {
    // No rule can name port 0, so it stands for "any other port" when everything is open.
    let other = (policy.mode == Mode::Open).then_some(0);
    let ports = [HTTPS, HTTP].into_iter().chain(policy.allow.iter().filter_map(ralph_core::policy::Rule::port));
    let mut refused = Why::Mode(policy.mode);
    for port in ports.chain(other) {
        let decision = decide(policy, host, port);
        match (decision.allowed, decision.rule) {
            (true, rule) => return Ok(rule.map_or(Why::Mode(policy.mode), |rule| Why::Rule(Box::new(rule)))),
            (false, Some(rule)) => refused = Why::Denied(Box::new(rule)),
            (false, None) => (),
        }
    }
    Err(refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(mode: Mode, allow: &[&str], deny: &[&str]) -> Policy {
        Policy::parse(mode, allow, deny).unwrap()
    }

    #[track_caller]
    fn check(policy: &Policy, target: &str, ask: &Ask, want: Result<&str, &str>) {
        let got = judge(policy, &Target::authority(target, None).unwrap(), ask);
        let got = got.map(|why| why.to_string()).map_err(|why| why.to_string());
        assert_eq!(got.as_deref().map_err(String::as_str), want, "{target}");
    }

    #[test]
    fn names() {
        let get = Ask::Request { method: "GET".to_owned(), path: "/a".to_owned() };
        let some = policy(Mode::Allowlist, &["x.io", "GET y.io/a", "z.io:80"], &["bad.io"]);
        let nobody = "no rule names it, and the network policy is `allowlist`";
        check(&some, "x.io:443", &Ask::Tunnel, Ok("rule `x.io`"));
        check(&some, "x.io:80", &Ask::Tunnel, Err(nobody));
        check(&some, "bad.io:443", &Ask::Tunnel, Err("it is denied by rule `bad.io` of the network policy"));
        check(
            &some,
            "y.io:443",
            &Ask::Tunnel,
            Err("its rules are about single requests, which cannot be seen inside a tunnel"),
        );
        check(&some, "y.io:443", &Ask::Connection, Ok("rule `GET y.io/a`"));
        check(&some, "y.io:443", &get, Ok("rule `GET y.io/a`"));
        check(&some, "z.io:80", &get, Ok("rule `z.io:80`"));
        let post = Ask::Request { method: "POST".to_owned(), path: "/a".to_owned() };
        let other = "the rules for this host allow other requests, and none allows this one";
        check(&some, "y.io:443", &post, Err(other));
        check(&some, "y.io:80", &post, Err(nobody));
        let none = Policy { mode: Mode::Deny, ..some };
        check(&none, "x.io:443", &Ask::Tunnel, Err("no rule names it, and the network policy is `deny`"));
    }

    #[test]
    fn inner_addresses_need_their_own_rule() {
        #[track_caller]
        fn check(policy: &Policy, address: &str, port: u16, want: bool) {
            let address = address.parse().unwrap();
            assert_eq!(admit(policy, address::kind(address), address, port).is_ok(), want, "{address}:{port}");
        }
        let rules = ["10.0.0.1:5432", "[::1]:80", "169.254.169.254:80", "GET 10.0.0.2/a"];
        let some = policy(Mode::Allowlist, &rules, &[]);
        check(&some, "1.1.1.1", 443, true);
        check(&some, "10.0.0.1", 5432, true);
        check(&some, "::ffff:10.0.0.1", 5432, true);
        check(&some, "10.0.0.1", 443, false);
        check(&some, "10.0.0.2", 443, false);
        check(&some, "::1", 80, true);
        check(&some, "169.254.169.254", 80, false);
        check(&policy(Mode::Open, &[], &[]), "10.0.0.1", 443, false);
        check(&policy(Mode::Open, &["10.0.0.1"], &[]), "10.0.0.1", 443, true);
        check(&policy(Mode::Allowlist, &["10.0.0.1"], &["10.0.0.1"]), "10.0.0.1", 443, false);
        check(&policy(Mode::Deny, &["10.0.0.1"], &[]), "10.0.0.1", 443, false);
    }

    #[test]
    fn names_without_a_port() {
        #[track_caller]
        fn check(policy: &Policy, host: &str, want: bool) {
            assert_eq!(judge_name(policy, host).is_ok(), want, "{host}");
        }
        let some = policy(Mode::Allowlist, &["x.io:8443", "GET y.io/a", "*.z.io"], &["bad.z.io"]);
        for (host, want) in
            [("x.io", true), ("y.io", true), ("a.z.io", true), ("z.io", false), ("bad.z.io", false), ("v.io", false)]
        {
            check(&some, host, want);
        }
        let open = policy(Mode::Open, &[], &["bad.io", "half.io:443", "half.io:80"]);
        check(&open, "x.io", true);
        check(&open, "half.io", true);
        check(&open, "bad.io", false);
        check(&policy(Mode::Deny, &["x.io"], &[]), "x.io", false);
    }
}
