//! Decides whether a policy allows a connection or a request.

use super::canonical_host::canonical_host;
use super::network_policy::{Policy, PolicyMode};
use super::path_pattern;
use super::rule::{HTTPS_PORT, PolicyRule, method_matches};

/// The decision, with the rule it is based on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PolicyDecision {
    pub allowed: bool,
    /// The rule that decided; `None` when no rule matched and the mode decided.
    pub rule: Option<PolicyRule>,
    /// The connection is allowed, but each request on it has to be checked with [`decide_request`].
    pub inspect: bool,
}

/// Decides about a connection by host name, before any DNS lookup. A name that cannot be canonicalised is refused.
pub fn decide_connection(policy: &Policy, host: &str, port: u16) -> PolicyDecision {
    let Ok(host) = canonical_host(host) else { return refuse(None) };
    if let Some(rule) = find_deny_rule(policy, &host, port, None) {
        return refuse(Some(rule));
    }
    let inspect_denials = policy.deny.iter().any(|rule| matches_host(rule, &host, port, rule.port));
    match policy.mode {
        PolicyMode::Deny => refuse(None),
        PolicyMode::Open => PolicyDecision { allowed: true, rule: None, inspect: inspect_denials },
        PolicyMode::Allowlist => {
            let allowed = || {
                policy
                    .allow
                    .iter()
                    .filter(|rule| matches_host(rule, &host, port, Some(rule.port.unwrap_or(HTTPS_PORT))))
            };
            if let Some(rule) = allowed().find(|rule| !rule.needs_request()) {
                return PolicyDecision { allowed: true, rule: Some(rule.clone()), inspect: inspect_denials };
            }
            match allowed().next() {
                Some(rule) => PolicyDecision { allowed: true, rule: Some(rule.clone()), inspect: true },
                None => refuse(None),
            }
        }
    }
}

/// Decides about one request on a connection. A path that servers may interpret in two ways is refused by any rule
/// with a path.
pub fn decide_request(policy: &Policy, host: &str, port: u16, method: &str, path: &str) -> PolicyDecision {
    let Ok(host) = canonical_host(host) else { return refuse(None) };
    if let Some(rule) = find_deny_rule(policy, &host, port, Some((method, path))) {
        return refuse(Some(rule));
    }
    match policy.mode {
        PolicyMode::Deny => refuse(None),
        PolicyMode::Open => PolicyDecision { allowed: true, rule: None, inspect: false },
        PolicyMode::Allowlist => {
            let allow = policy.allow.iter().find(|rule| {
                matches_host(rule, &host, port, Some(rule.port.unwrap_or(HTTPS_PORT)))
                    && matches_request(rule, method, path, false)
            });
            PolicyDecision { allowed: allow.is_some(), rule: allow.cloned(), inspect: false }
        }
    }
}

/// Returns the deny rule that matches a host, or one request to it: for connections that need no allow rule but still
/// respect the user's deny rules.
pub fn matching_deny_rule<'a>(
    policy: &'a Policy,
    host: &str,
    port: u16,
    request: Option<(&str, &str)>,
) -> Option<&'a PolicyRule> {
    find_deny_rule(policy, &canonical_host(host).ok()?, port, request)
}

/// As [`matching_deny_rule`], for a canonical host. Without a request only rules about whole hosts match.
fn find_deny_rule<'a>(
    policy: &'a Policy,
    host: &str,
    port: u16,
    request: Option<(&str, &str)>,
) -> Option<&'a PolicyRule> {
    policy.deny.iter().find(|rule| {
        matches_host(rule, host, port, rule.port)
            && request.map_or(!rule.needs_request(), |(method, path)| matches_request(rule, method, path, true))
    })
}

/// Returns whether a rule matches a request; `doubtful` is the result for a path that can be interpreted in two ways.
fn matches_request(rule: &PolicyRule, method: &str, path: &str, doubtful: bool) -> bool {
    rule.method.as_deref().is_none_or(|wanted| method_matches(wanted, &method.to_ascii_uppercase()))
        && rule.path.as_deref().is_none_or(|pattern| path_pattern::matches(pattern, path).unwrap_or(doubtful))
}

fn matches_host(rule: &PolicyRule, host: &str, port: u16, wanted: Option<u16>) -> bool {
    wanted.is_none_or(|wanted| wanted == port) && rule.host.matches(host)
}

fn refuse(rule: Option<&PolicyRule>) -> PolicyDecision {
    PolicyDecision { allowed: false, rule: rule.cloned(), inspect: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy() -> Policy {
        Policy::parse(
            PolicyMode::Allowlist,
            &["x.io", "*.y.io", "z.io:80", "GET w.io/a/*", "bad.y.io", "v.io"],
            &["bad.y.io", "DELETE v.io"],
        )
        .expect("rules")
    }

    #[track_caller]
    fn check(host: &str, port: u16, want: (bool, Option<&str>, bool)) {
        let got = decide_connection(&policy(), host, port);
        let rule = got.rule.map(|rule| rule.to_string());
        assert_eq!((got.allowed, rule.as_deref(), got.inspect), want, "{host}:{port}");
    }

    #[test]
    fn connections() {
        check("X.io.", 443, (true, Some("x.io"), false));
        check("x.io", 80, (false, None, false));
        check("z.io", 80, (true, Some("z.io:80"), false));
        check("z.io", 443, (false, None, false));
        check("a.y.io", 443, (true, Some("*.y.io"), false));
        check("y.io", 443, (false, None, false));
        check("bad.y.io", 443, (false, Some("bad.y.io"), false));
        check("w.io", 443, (true, Some("GET w.io/a/*"), true));
        check("v.io", 443, (true, Some("v.io"), true));
        check("0x7f.1", 443, (false, None, false));
        check("", 443, (false, None, false));
    }

    #[track_caller]
    fn request(host: &str, method: &str, path: &str, want: bool) {
        assert_eq!(decide_request(&policy(), host, 443, method, path).allowed, want, "{method} {host}{path}");
    }

    #[test]
    fn requests() {
        request("w.io", "GET", "/a/b", true);
        request("w.io", "head", "/a/b?q", true);
        request("w.io", "POST", "/a/b", false);
        request("w.io", "GET", "/a/../b", false);
        request("w.io", "GET", "/b", false);
        request("v.io", "POST", "/", true);
        request("v.io", "DELETE", "/", false);
        request("bad.y.io", "GET", "/", false);
    }

    /// A deny rule applies in every mode, with or without an allow rule for the host.
    #[test]
    fn deny_rules_apply_in_every_mode() {
        #[track_caller]
        fn check(host: &str, request: Option<(&str, &str)>, want: Option<&str>) {
            for mode in [PolicyMode::Deny, PolicyMode::Allowlist, PolicyMode::Open] {
                let policy = Policy { mode, ..policy() };
                let got = matching_deny_rule(&policy, host, 8443, request).map(ToString::to_string);
                assert_eq!(got.as_deref(), want, "{mode} {host} {request:?}");
            }
        }
        check("bad.y.io", None, Some("bad.y.io"));
        check("BAD.y.io.", Some(("POST", "/v1/messages")), Some("bad.y.io"));
        check("v.io", None, None);
        check("v.io", Some(("delete", "/v1/models/x")), Some("DELETE v.io"));
        check("v.io", Some(("POST", "/v1/messages")), None);
        check("x.io", Some(("POST", "/")), None);
        check("nobody.io", None, None);
    }

    #[test]
    fn modes() {
        for (mode, host, want) in [
            (PolicyMode::Deny, "x.io", false),
            (PolicyMode::Open, "other.io", true),
            (PolicyMode::Open, "bad.y.io", false),
            (PolicyMode::Allowlist, "other.io", false),
        ] {
            assert_eq!(decide_connection(&Policy { mode, ..policy() }, host, 443).allowed, want, "{mode} {host}");
        }
        assert!(
            !decide_connection(&Policy { mode: PolicyMode::Open, ..policy() }, "bad.y.io", 80).allowed,
            "a deny rule means every port"
        );
        let doubtful = Policy::parse(PolicyMode::Open, &[], &["x.io/admin/*"]).expect("rules");
        assert!(!decide_request(&doubtful, "x.io", 443, "GET", "/a/../admin/x").allowed);
    }
}
