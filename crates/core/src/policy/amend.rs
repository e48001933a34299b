//! Changes a policy that is in force, at the user's request.

use super::decide::{decide_connection, matching_deny_rule};
use super::network_policy::{Policy, PolicyMode};
use super::rule::{BadRule, HTTPS_PORT, PolicyRule, expand};

impl Policy {
    /// Adds an allow rule or preset. Under `deny`, the policy becomes an allowlist of that entry alone.
    pub fn add_allow(&mut self, entry: &str) -> Result<(), BadRule> {
        let rules = expand(entry)?;
        if self.mode == PolicyMode::Deny {
            // Entries listed while the mode was `deny` were not allowed then, and are not allowed now.
            self.allow.clear();
            self.mode = PolicyMode::Allowlist;
        }
        add(&mut self.allow, rules);
        Ok(())
    }

    /// Adds a deny rule or preset, which beats every allow rule.
    pub fn add_deny(&mut self, entry: &str) -> Result<(), BadRule> {
        add(&mut self.deny, expand(entry)?);
        Ok(())
    }

    /// Returns the hosts, each once, to which no TLS connection is allowed because no rule names them.
    pub fn unreachable_hosts<'a>(&self, hosts: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
        let mut found = Vec::new();
        for host in hosts {
            let reached = decide_connection(self, host, HTTPS_PORT).allowed
                || matching_deny_rule(self, host, HTTPS_PORT, None).is_some();
            if !reached && !found.contains(&host) {
                found.push(host);
            }
        }
        found
    }

    /// Returns the first rule of an entry that would have no effect if allowed, and the deny rule that beats it.
    pub fn overriding_deny(&self, entry: &str) -> Result<Option<(PolicyRule, &PolicyRule)>, BadRule> {
        let overridden = |rule: PolicyRule| {
            let by = self.deny.iter().find(|deny| deny.denies_all_of(&rule))?;
            Some((rule, by))
        };
        Ok(expand(entry)?.into_iter().find_map(overridden))
    }
}

fn add(rules: &mut Vec<PolicyRule>, more: Vec<PolicyRule>) {
    for rule in more {
        if !rules.contains(&rule) {
            rules.push(rule);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(
        mode: PolicyMode,
        allow: &[&str],
        deny: &[&str],
        amend: fn(&mut Policy) -> Result<(), BadRule>,
        want: &str,
    ) {
        let mut policy = Policy::parse(mode, allow, deny).expect("rules");
        let outcome = match amend(&mut policy) {
            Ok(()) => serde_json::to_string(&policy).expect("strings serialise"),
            Err(error) => error.to_string(),
        };
        assert_eq!(outcome, want);
    }

    #[test]
    fn policies_are_amended() {
        let allow: fn(&mut Policy) -> Result<(), BadRule> = |policy| policy.add_allow("X.io");
        check(PolicyMode::Deny, &["old.io"], &[], allow, r#"{"mode":"allowlist","allow":["x.io"],"deny":[]}"#);
        check(
            PolicyMode::Allowlist,
            &["a.io", "x.io"],
            &[],
            allow,
            r#"{"mode":"allowlist","allow":["a.io","x.io"],"deny":[]}"#,
        );
        check(PolicyMode::Open, &[], &["b.io"], allow, r#"{"mode":"open","allow":["x.io"],"deny":["b.io"]}"#);
        let deny: fn(&mut Policy) -> Result<(), BadRule> = |policy| policy.add_deny("pypi");
        check(
            PolicyMode::Open,
            &[],
            &["files.pythonhosted.org"],
            deny,
            r#"{"mode":"open","allow":[],"deny":["files.pythonhosted.org","pypi.org"]}"#,
        );
        check(PolicyMode::Deny, &[], &[], |policy| policy.add_allow("*"), "rule `*` would match every host");
        check(
            PolicyMode::Deny,
            &[],
            &[],
            |policy| policy.add_deny("pipy"),
            "rule `pipy` is neither a preset nor a full host name",
        );
    }

    #[test]
    fn unreachable_hosts_lack_a_rule() {
        let rules = ["GET x.io/a", "*.y.io", "z.io:80"];
        let policy = Policy::parse(PolicyMode::Allowlist, &rules, &["w.io"]).expect("rules");
        let hosts = || ["x.io", "a.y.io", "y.io", "z.io", "w.io", "y.io"];
        assert_eq!(policy.unreachable_hosts(hosts()), ["y.io", "z.io"]);
        assert_eq!(Policy { mode: PolicyMode::Deny, ..policy.clone() }.unreachable_hosts(["x.io", "w.io"]), ["x.io"]);
        assert_eq!(Policy { mode: PolicyMode::Open, ..policy }.unreachable_hosts(hosts()), Vec::<&str>::new());
    }

    #[test]
    fn deny_rules_override_allow_rules() {
        let policy = Policy::parse(PolicyMode::Open, &[], &["*.x.io", "GET y.io/a"]).expect("rules");
        for (entry, want) in
            [("a.x.io", Some("*.x.io")), ("x.io", None), ("y.io", None), ("GET y.io/a", Some("GET y.io/a"))]
        {
            let by = policy.overriding_deny(entry).expect("a rule").map(|(_, by)| by.to_string());
            assert_eq!(by.as_deref(), want, "{entry}");
        }
    }
}
