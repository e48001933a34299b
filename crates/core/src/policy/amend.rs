//! What a person adds to a policy that is in force.

use super::decide::{decide, denial};
use super::rule::{BadRule, HTTPS, Rule, expand};
use super::set::{Mode, Policy};

impl Policy {
    /// Allows a rule or a preset too. Where nothing was allowed, it makes an allowlist of that alone.
    pub fn allow_also(&mut self, entry: &str) -> Result<(), BadRule> {
        let rules = expand(entry)?;
        if self.mode == Mode::Deny {
            // What the list named while no list counted was not allowed, and is not now.
            self.allow.clear();
            self.mode = Mode::Allowlist;
        }
        add(&mut self.allow, rules);
        Ok(())
    }

    /// Denies a rule or a preset too, whatever is allowed.
    pub fn deny_also(&mut self, entry: &str) -> Result<(), BadRule> {
        add(&mut self.deny, expand(entry)?);
        Ok(())
    }

    /// Returns the hosts, each once, of which nothing may be asked over TLS for want of a rule.
    pub fn unreached<'a>(&self, hosts: impl IntoIterator<Item = &'a str>) -> Vec<&'a str> {
        let mut found = Vec::new();
        for host in hosts {
            let reached = decide(self, host, HTTPS).allowed || denial(self, host, HTTPS, None).is_some();
            if !reached && !found.contains(&host) {
                found.push(host);
            }
        }
        found
    }

    /// Returns the rule of an entry that could be allowed in vain, and the deny rule that beats it.
    pub fn denial_of(&self, entry: &str) -> Result<Option<(Rule, &Rule)>, BadRule> {
        let beaten = |rule: Rule| {
            let by = self.deny.iter().find(|deny| deny.denies_all_of(&rule))?;
            Some((rule, by))
        };
        Ok(expand(entry)?.into_iter().find_map(beaten))
    }
}

fn add(rules: &mut Vec<Rule>, more: Vec<Rule>) {
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
    fn check(mode: Mode, allow: &[&str], deny: &[&str], amend: fn(&mut Policy) -> Result<(), BadRule>, want: &str) {
        let mut policy = Policy::parse(mode, allow, deny).expect("rules");
        let told = match amend(&mut policy) {
            Ok(()) => serde_json::to_string(&policy).expect("strings serialise"),
            Err(error) => error.to_string(),
        };
        assert_eq!(told, want);
    }

    #[test]
    fn amended() {
        let allow: fn(&mut Policy) -> Result<(), BadRule> = |policy| policy.allow_also("X.io");
        check(Mode::Deny, &["old.io"], &[], allow, r#"{"mode":"allowlist","allow":["x.io"],"deny":[]}"#);
        check(
            Mode::Allowlist,
            &["a.io", "x.io"],
            &[],
            allow,
            r#"{"mode":"allowlist","allow":["a.io","x.io"],"deny":[]}"#,
        );
        check(Mode::Open, &[], &["b.io"], allow, r#"{"mode":"open","allow":["x.io"],"deny":["b.io"]}"#);
        let deny: fn(&mut Policy) -> Result<(), BadRule> = |policy| policy.deny_also("pypi");
        check(
            Mode::Open,
            &[],
            &["files.pythonhosted.org"],
            deny,
            r#"{"mode":"open","allow":[],"deny":["files.pythonhosted.org","pypi.org"]}"#,
        );
        check(Mode::Deny, &[], &[], |policy| policy.allow_also("*"), "rule `*` would match every host");
        check(
            Mode::Deny,
            &[],
            &[],
            |policy| policy.deny_also("pipy"),
            "rule `pipy` is neither a preset nor a full host name",
        );
    }

    #[test]
    fn unreached() {
        let rules = ["GET x.io/a", "*.y.io", "z.io:80"];
        let policy = Policy::parse(Mode::Allowlist, &rules, &["w.io"]).expect("rules");
        let hosts = || ["x.io", "a.y.io", "y.io", "z.io", "w.io", "y.io"];
        assert_eq!(policy.unreached(hosts()), ["y.io", "z.io"]);
        assert_eq!(Policy { mode: Mode::Deny, ..policy.clone() }.unreached(["x.io", "w.io"]), ["x.io"]);
        assert_eq!(Policy { mode: Mode::Open, ..policy }.unreached(hosts()), Vec::<&str>::new());
    }

    #[test]
    fn beaten() {
        let policy = Policy::parse(Mode::Open, &[], &["*.x.io", "GET y.io/a"]).expect("rules");
        for (entry, want) in
            [("a.x.io", Some("*.x.io")), ("x.io", None), ("y.io", None), ("GET y.io/a", Some("GET y.io/a"))]
        {
            let by = policy.denial_of(entry).expect("a rule").map(|(_, by)| by.to_string());
            assert_eq!(by.as_deref(), want, "{entry}");
        }
    }
}
