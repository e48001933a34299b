//! A complete policy: a mode and two rule lists.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::rule::{BadRule, PolicyRule, expand};

/// What happens to a host that no rule names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "Mode")]
pub enum PolicyMode {
    /// Only the model endpoints of the run; the allow list is ignored.
    #[default]
    Deny,
    /// Only the hosts on the allow list.
    Allowlist,
    /// Every host and port that no deny rule names. Must be requested explicitly.
    Open,
}

impl PolicyMode {
    pub const ALL: [Self; 3] = [Self::Deny, Self::Allowlist, Self::Open];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deny => "deny",
            Self::Allowlist => "allowlist",
            Self::Open => "open",
        }
    }
}

impl fmt::Display for PolicyMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for PolicyMode {
    type Err = UnknownPolicyMode;
    fn from_str(text: &str) -> Result<Self, UnknownPolicyMode> {
        Self::ALL.into_iter().find(|mode| mode.as_str() == text).ok_or_else(|| UnknownPolicyMode(text.to_owned()))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a network policy: use deny, allowlist or open")]
pub struct UnknownPolicyMode(String);

/// Which hosts a sandbox may reach. Deny rules beat allow rules.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Policy {
    pub mode: PolicyMode,
    #[serde(default)]
    pub allow: Vec<PolicyRule>,
    #[serde(default)]
    pub deny: Vec<PolicyRule>,
}

impl Policy {
    /// Builds a policy from rule texts and preset names.
    pub fn parse<T: AsRef<str>>(mode: PolicyMode, allow: &[T], deny: &[T]) -> Result<Self, BadRule> {
        Ok(Self { mode, allow: expand_all(allow)?, deny: expand_all(deny)? })
    }
}

/// Expands every entry of a list, keeping the first of equal rules.
pub(super) fn expand_all<T: AsRef<str>>(entries: &[T]) -> Result<Vec<PolicyRule>, BadRule> {
    let mut rules = Vec::new();
    for entry in entries {
        for rule in expand(entry.as_ref())? {
            if !rules.contains(&rule) {
                rules.push(rule);
            }
        }
    }
    Ok(rules)
}

/// Returns a hash of a policy's meaning: the order of rules and repetitions do not matter.
pub fn hash(policy: &Policy) -> String {
    let list = |rules: &[PolicyRule]| {
        let mut texts: Vec<String> = rules.iter().map(ToString::to_string).collect();
        texts.sort();
        texts.dedup();
        texts
    };
    let parts = (policy.mode, list(&policy.allow), list(&policy.deny));
    crate::hash::sha256(&serde_json::to_vec(&parts).expect("strings serialise"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_does_not_change_the_hash() {
        let policy = |mode, allow: &[&str]| Policy::parse(mode, allow, &[]).expect("rules");
        let one = hash(&policy(PolicyMode::Allowlist, &["a.io", "b.io", "a.io"]));
        assert_eq!(one, hash(&policy(PolicyMode::Allowlist, &["B.io", "a.io."])));
        assert_ne!(one, hash(&policy(PolicyMode::Open, &["a.io", "b.io"])));
        assert_ne!(one, hash(&policy(PolicyMode::Allowlist, &["a.io"])));
    }

    #[test]
    fn rules_are_texts_in_json() {
        let policy = Policy::parse(PolicyMode::Allowlist, &["pypi"], &["GET x.io/a"]).expect("rules");
        let json = serde_json::to_string(&policy).expect("serialises");
        assert_eq!(json, r#"{"mode":"allowlist","allow":["pypi.org","files.pythonhosted.org"],"deny":["GET x.io/a"]}"#);
        assert_eq!(serde_json::from_str::<Policy>(&json).expect("reads back"), policy);
    }
}
