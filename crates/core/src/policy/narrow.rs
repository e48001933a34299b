//! What a task or a project may ask of the network: less than the user allows, never more.

use super::preset::shorten;
use super::rule::Rule;
use super::set::{Mode, Policy};

/// An ask that goes beyond what the user allows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Widening {
    #[error("network policy `{asked}` is wider than `{limit}`")]
    Mode { asked: Mode, limit: Mode },
    /// All of them at once, so that a person can allow them in one go.
    #[error("host rules `{}` are not allowed by the network policy", shorten(.rules).join("`, `"))]
    NotAllowed { rules: Vec<Rule> },
    #[error("host rule `{rule}` is denied by `{by}`")]
    Denied { rule: Box<Rule>, by: Box<Rule> },
}

/// Returns the part of `limit` that `ask` asks for, or what in it would widen.
///
/// Whatever the answer allows, `limit` allows: deny rules add up, and every allow rule is covered by one of `limit`'s.
pub fn narrow(limit: &Policy, ask: &Policy) -> Result<Policy, Widening> {
    if ask.mode == Mode::Open && limit.mode != Mode::Open {
        return Err(Widening::Mode { asked: ask.mode, limit: limit.mode });
    }
    let mut deny = limit.deny.clone();
    deny.extend(ask.deny.iter().filter(|rule| !limit.deny.contains(rule)).cloned());
    if ask.mode == Mode::Allowlist {
        check(limit, &ask.allow)?;
    }
    let allow = if ask.mode == Mode::Allowlist { ask.allow.clone() } else { Vec::new() };
    Ok(Policy { mode: ask.mode, allow, deny })
}

fn check(limit: &Policy, asked: &[Rule]) -> Result<(), Widening> {
    for rule in asked {
        if let Some(by) = limit.deny.iter().find(|deny| deny.denies_all_of(rule)) {
            return Err(Widening::Denied { rule: Box::new(rule.clone()), by: Box::new(by.clone()) });
        }
    }
    let allowed = |rule: &&Rule| match limit.mode {
        Mode::Deny => false,
        Mode::Open => true,
        Mode::Allowlist => limit.allow.iter().any(|wide| wide.covers(rule)),
    };
    let rules: Vec<Rule> = asked.iter().filter(|rule| !allowed(rule)).cloned().collect();
    if rules.is_empty() { Ok(()) } else { Err(Widening::NotAllowed { rules }) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::{decide, decide_request};
    use super::*;

    fn policy(mode: Mode, allow: &[&str], deny: &[&str]) -> Policy {
        Policy::parse(mode, allow, deny).expect("rules")
    }

    #[track_caller]
    fn check(limit: &Policy, ask: &Policy, want: Result<&Policy, &str>) {
        let got = narrow(limit, ask).map_err(|error| error.to_string());
        assert_eq!(got.as_ref().map_err(String::as_str), want);
    }

    #[test]
    fn narrowing() {
        let user = policy(Mode::Allowlist, &["*.x.io", "npm"], &["bad.x.io"]);
        check(
            &user,
            &policy(Mode::Allowlist, &["a.x.io"], &["b.x.io"]),
            Ok(&policy(Mode::Allowlist, &["a.x.io"], &["bad.x.io", "b.x.io"])),
        );
        check(&user, &policy(Mode::Deny, &["other.io"], &[]), Ok(&policy(Mode::Deny, &[], &["bad.x.io"])));
        check(
            &user,
            &policy(Mode::Allowlist, &["other.io", "a.x.io", "go"], &[]),
            Err("host rules `go`, `other.io` are not allowed by the network policy"),
        );
        check(&user, &policy(Mode::Allowlist, &["bad.x.io"], &[]), Err("host rule `bad.x.io` is denied by `bad.x.io`"));
        check(&user, &policy(Mode::Open, &[], &[]), Err("network policy `open` is wider than `allowlist`"));
        let open = policy(Mode::Open, &[], &[]);
        check(&open, &open, Ok(&open));
        check(
            &policy(Mode::Deny, &["x.io"], &[]),
            &policy(Mode::Allowlist, &["x.io"], &[]),
            Err("host rules `x.io` are not allowed by the network policy"),
        );
    }

    fn rule() -> impl Strategy<Value = Rule> {
        "((GET|POST) )?(\\*\\.)?((a|b)\\.){0,2}(x|y)\\.io(:(80|443))?(/(p|q|\\*)){0,2}"
            .prop_map(|text| text.parse().expect("the pattern makes rules"))
    }

    fn any_policy() -> impl Strategy<Value = Policy> {
        let mode = prop_oneof![1 => Just(Mode::Deny), 6 => Just(Mode::Allowlist), 2 => Just(Mode::Open)];
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
                if decide(&narrowed, &host, port).allowed {
                    prop_assert!(decide(&limit, &host, port).allowed, "{limit:?} {narrowed:?}");
                }
                if decide_request(&narrowed, &host, port, &method, &path).allowed {
                    prop_assert!(decide_request(&limit, &host, port, &method, &path).allowed, "{limit:?} {narrowed:?}");
                }
            }
        }
    }
}
