//! Narrows the network policy to what a task or a project requests: less than the user allows, never more.

use super::network_policy::{Policy, PolicyMode};
use super::preset::shorten;
use super::rule::PolicyRule;

/// A request that goes beyond what the user allows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PolicyWidening {
    #[error("network policy `{asked}` is wider than `{limit}`")]
    Mode { asked: PolicyMode, limit: PolicyMode },
    /// All of them at once, so that the user can allow them in one go.
    #[error("host rules `{}` are not allowed by the network policy", shorten(.rules).join("`, `"))]
    NotAllowed { rules: Vec<PolicyRule> },
    #[error("host rule `{rule}` is denied by `{by}`")]
    Denied { rule: Box<PolicyRule>, by: Box<PolicyRule> },
}

/// Returns the part of `limit` that `ask` requests, or what in it would widen the policy.
///
/// Everything the result allows, `limit` allows too: deny rules add up, and every allow rule is covered by one of
/// `limit`'s.
pub fn narrow(limit: &Policy, ask: &Policy) -> Result<Policy, PolicyWidening> {
    if ask.mode == PolicyMode::Open && limit.mode != PolicyMode::Open {
        return Err(PolicyWidening::Mode { asked: ask.mode, limit: limit.mode });
    }
    let mut deny = limit.deny.clone();
    deny.extend(ask.deny.iter().filter(|rule| !limit.deny.contains(rule)).cloned());
    if ask.mode == PolicyMode::Allowlist {
        check(limit, &ask.allow)?;
    }
    let allow = if ask.mode == PolicyMode::Allowlist { ask.allow.clone() } else { Vec::new() };
    Ok(Policy { mode: ask.mode, allow, deny })
}

fn check(limit: &Policy, asked: &[PolicyRule]) -> Result<(), PolicyWidening> {
    for rule in asked {
        if let Some(by) = limit.deny.iter().find(|deny| deny.denies_all_of(rule)) {
            return Err(PolicyWidening::Denied { rule: Box::new(rule.clone()), by: Box::new(by.clone()) });
        }
    }
    let allowed = |rule: &&PolicyRule| match limit.mode {
        PolicyMode::Deny => false,
        PolicyMode::Open => true,
        PolicyMode::Allowlist => limit.allow.iter().any(|wide| wide.covers(rule)),
    };
    let rules: Vec<PolicyRule> = asked.iter().filter(|rule| !allowed(rule)).cloned().collect();
    if rules.is_empty() { Ok(()) } else { Err(PolicyWidening::NotAllowed { rules }) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{decide_connection, decide_request};
    use super::*;

    fn policy(mode: PolicyMode, allow: &[&str], deny: &[&str]) -> Policy {
        Policy::parse(mode, allow, deny).expect("rules")
    }

    #[track_caller]
    fn check(limit: &Policy, ask: &Policy, want: Result<&Policy, &str>) {
        let got = narrow(limit, ask).map_err(|error| error.to_string());
        assert_eq!(got.as_ref().map_err(String::as_str), want);
    }

    #[test]
    fn narrowing() {
        let user = policy(PolicyMode::Allowlist, &["*.x.io", "npm"], &["bad.x.io"]);
        check(
            &user,
            &policy(PolicyMode::Allowlist, &["a.x.io"], &["b.x.io"]),
            Ok(&policy(PolicyMode::Allowlist, &["a.x.io"], &["bad.x.io", "b.x.io"])),
        );
        check(&user, &policy(PolicyMode::Deny, &["other.io"], &[]), Ok(&policy(PolicyMode::Deny, &[], &["bad.x.io"])));
        check(
            &user,
            &policy(PolicyMode::Allowlist, &["other.io", "a.x.io", "go"], &[]),
            Err("host rules `go`, `other.io` are not allowed by the network policy"),
        );
        check(
            &user,
            &policy(PolicyMode::Allowlist, &["bad.x.io"], &[]),
            Err("host rule `bad.x.io` is denied by `bad.x.io`"),
        );
        check(&user, &policy(PolicyMode::Open, &[], &[]), Err("network policy `open` is wider than `allowlist`"));
        let open = policy(PolicyMode::Open, &[], &[]);
        check(&open, &open, Ok(&open));
        check(
            &policy(PolicyMode::Deny, &["x.io"], &[]),
            &policy(PolicyMode::Allowlist, &["x.io"], &[]),
            Err("host rules `x.io` are not allowed by the network policy"),
        );
    }

    fn rule() -> impl Strategy<Value = PolicyRule> {
        "((GET|POST) )?(\\*\\.)?((a|b)\\.){0,2}(x|y)\\.io(:(80|443))?(/(p|q|\\*)){0,2}"
            .prop_map(|text| text.parse().expect("the pattern makes rules"))
    }

    fn any_policy() -> impl Strategy<Value = Policy> {
        let mode =
            prop_oneof![1 => Just(PolicyMode::Deny), 6 => Just(PolicyMode::Allowlist), 2 => Just(PolicyMode::Open)];
        (mode, prop::collection::vec(rule(), 0..4), prop::collection::vec(rule(), 0..3))
            .prop_map(|(mode, allow, deny)| Policy { mode, allow, deny })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]
        #[test]
        fn narrowing_never_allows_more(
            limit in any_policy(),
            ask in any_policy(),
            host in "((a|b)\\.){0,2}(x|y)\\.io",
            port in prop_oneof![Just(80u16), Just(443)],
            method in "GET|HEAD|POST",
            path in "(/(p|q)){1,2}|/p/../q|/p%2fq",
        ) {
            if let Ok(narrowed) = narrow(&limit, &ask) {
                if decide_connection(&narrowed, &host, port).allowed {
                    prop_assert!(decide_connection(&limit, &host, port).allowed, "{limit:?} {narrowed:?}");
                }
                if decide_request(&narrowed, &host, port, &method, &path).allowed {
                    prop_assert!(decide_request(&limit, &host, port, &method, &path).allowed, "{limit:?} {narrowed:?}");
                }
            }
        }
    }
}
