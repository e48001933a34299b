//! Names of secrets: the same as environment variables, so that one name means one thing everywhere.

use std::fmt;
use std::ops::Deref;

use crate::env_vars;
use crate::profile::PROVIDERS;
use crate::redact::Redactor;

/// A name under which a secret is stored. It is also a file name, so no other characters are accepted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretName(String);

/// The reasons why a text cannot name a secret. Text that looks like a value is not repeated.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadName {
    #[error("that looks like the value of a secret, not like its name")]
    Value,
    #[error("`{name}` cannot name a secret: a name has capital letters, digits and `_`, like a variable")]
    Form { name: String },
}

impl BadName {
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Value => "a value on the command line is visible to every program and saved in the shell's history: run `ralph secret set NAME`, which prompts for it".to_owned(),
            Self::Form { .. } => "ralph secret set ANTHROPIC_API_KEY".to_owned(),
        })
    }
}

/// Credentials that belong to no model provider.
const OTHER_CREDENTIALS: [&str; 3] =
    [env_vars::CLAUDE_CODE_OAUTH_TOKEN, env_vars::GITHUB_PAT, env_vars::DAYTONA_API_KEY];
const MAX_NAME_BYTES: usize = 100;

/// Returns every name that ralph itself looks for, sorted, each once.
pub fn known_credentials() -> Vec<&'static str> {
    let mut names: Vec<&str> = OTHER_CREDENTIALS.to_vec();
    names.extend(PROVIDERS.iter().flat_map(|provider| provider.key_envs));
    names.sort_unstable();
    names.dedup();
    names
}

impl SecretName {
    pub fn parse(text: &str) -> Result<Self, BadName> {
        let first = text.bytes().next().is_some_and(|byte| byte.is_ascii_uppercase());
        let rest = text.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_');
        if first && rest && text.len() <= MAX_NAME_BYTES {
            return Ok(Self(text.to_owned()));
        }
        // A short lower-case word is a typo; anything else may be the secret.
        let word = text.len() <= 40 && text.bytes().all(|byte| byte.is_ascii_alphabetic() || b"_-. ".contains(&byte));
        if word && !looks_like_a_value(text) {
            return Err(BadName::Form { name: text.to_owned() });
        }
        Err(BadName::Value)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Deref for SecretName {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Returns whether an argument looks like a credential rather than a name or a flag's value.
pub fn looks_like_a_value(text: &str) -> bool {
    let prefixes = ["sk-", "ghp_", "gho_", "ghs_", "github_pat_", "AIza", "xoxb-", "glpat-", "-----BEGIN", "Bearer "];
    let digits = text.bytes().filter(u8::is_ascii_digit).count();
    let lower = text.bytes().filter(u8::is_ascii_lowercase).count();
    prefixes.iter().any(|prefix| text.starts_with(prefix))
        || !Redactor::new([]).find(text).is_empty()
        || (text.len() >= 20 && digits >= 2 && lower >= 2 && !text.contains(['/', ' ']))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, want: &Result<(), BadName>) {
        assert_eq!(SecretName::parse(text).map(|_| ()), *want, "{text}");
    }

    #[test]
    fn names() {
        check("ANTHROPIC_API_KEY", &Ok(()));
        check("A", &Ok(()));
        check("KEY_2", &Ok(()));
        check("anthropic", &Err(BadName::Form { name: "anthropic".to_owned() }));
        check("", &Err(BadName::Form { name: String::new() }));
        for value in [
            &["sk-", "ant-api03-abc"].concat(),
            &["gh", "p_abc"].concat(),
            "ANTHROPIC_API_KEY=abc",
            "../../x1",
            "2KEY",
            "5fd924625f6ab16a19cc9807c7c506ae1813490e4ba675f843d5a10e0baacdb8",
            &"A".repeat(200),
        ] {
            check(value, &Err(BadName::Value));
            assert!(!BadName::Value.to_string().contains(value));
        }
    }

    #[test]
    fn every_credential_is_a_variable_with_a_good_name() {
        let all = known_credentials();
        for name in &all {
            check(name, &Ok(()));
            assert!(env_vars::ALL.iter().any(|var| var.name == *name), "{name}");
        }
        assert!(all.len() > 20, "{all:?}");
    }

    #[test]
    fn values() {
        for (text, want) in [
            (["sk-", "x"].concat().as_str(), true),
            ("q8Wz7Xv6Cu5Tb4Sn3Rm2Pl1Kk0", true),
            ("2027-01-31", false),
            ("90", false),
            ("https://gateway.example/v1", false),
            ("ANTHROPIC_API_KEY", false),
        ] {
            assert_eq!(looks_like_a_value(text), want, "{text}");
        }
    }

    proptest! {
        #[test]
        fn names_are_plain_file_names(text in "\\PC{0,30}|[A-Z0-9_./]{0,12}") {
            if let Ok(name) = SecretName::parse(&text) {
                prop_assert!(!name.contains(['/', '.', '\\', '\0']) && !name.is_empty());
            }
        }
    }
}
