//! Recognises the kind of a credential by its name and its shape.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::{env_vars, text};

/// The kind of a credential, which decides how it is sent and checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SecretKind {
    /// A token of a subscription, sent as a bearer token.
    Oauth,
    /// A key of one provider.
    ApiKey,
    /// A token of a gateway that has its own base URL.
    Gateway,
    GithubPat,
    /// The private key of a GitHub App, in PEM.
    GithubApp,
}

/// An unknown name of a kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no kind of secret `{name}`")]
pub struct UnknownSecretKind {
    pub name: String,
}

impl UnknownSecretKind {
    pub fn hint(&self) -> Option<String> {
        let all = SecretKind::ALL.map(SecretKind::as_str);
        Some(match text::did_you_mean(&self.name, all) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!("it is one of {}", all.join(", ")),
        })
    }
}

impl SecretKind {
    pub const ALL: [Self; 5] = [Self::Oauth, Self::ApiKey, Self::Gateway, Self::GithubPat, Self::GithubApp];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Oauth => "oauth",
            Self::ApiKey => "api-key",
            Self::Gateway => "gateway",
            Self::GithubPat => "github-pat",
            Self::GithubApp => "github-app",
        }
    }

    /// Guesses the kind of a value: by its shape, else by its name; otherwise it is an API key, like most.
    pub fn guess(name: &str, value: &str) -> Self {
        let value = value.trim_start();
        let shapes: [(&[&str], Self); 4] = [
            (&["sk-ant-oat"], Self::Oauth),
            (&["sk-ant-api"], Self::ApiKey),
            (&["ghp_", "github_pat_"], Self::GithubPat),
            (&["-----BEGIN "], Self::GithubApp),
        ];
        let shaped = shapes.into_iter().find(|(starts, _)| starts.iter().any(|start| value.starts_with(start)));
        match (shaped, name) {
            (Some((_, kind)), _) => kind,
            (None, env_vars::CLAUDE_CODE_OAUTH_TOKEN) => Self::Oauth,
            (None, env_vars::ANTHROPIC_AUTH_TOKEN | env_vars::LITELLM_PROXY_API_KEY) => Self::Gateway,
            (None, env_vars::GITHUB_PAT) => Self::GithubPat,
            (None, "GITHUB_APP_PRIVATE_KEY_PEM") => Self::GithubApp,
            (None, _) => Self::ApiKey,
        }
    }
}

impl fmt::Display for SecretKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for SecretKind {
    type Err = UnknownSecretKind;

    fn from_str(name: &str) -> Result<Self, UnknownSecretKind> {
        let found = Self::ALL.into_iter().find(|kind| kind.as_str() == name);
        found.ok_or_else(|| UnknownSecretKind { name: text::strip_control(text::first_line(name, 40)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guesses() {
        for (name, value, want) in [
            ("CLAUDE_CODE_OAUTH_TOKEN", "anything", SecretKind::Oauth),
            ("MINE", "sk-ant-oat01-x", SecretKind::Oauth),
            ("ANTHROPIC_API_KEY", "sk-ant-api03-x", SecretKind::ApiKey),
            // The shape takes precedence over the name: it shows what was actually pasted.
            ("ANTHROPIC_API_KEY", "sk-ant-oat01-x", SecretKind::Oauth),
            ("ANTHROPIC_AUTH_TOKEN", "abc", SecretKind::Gateway),
            ("LITELLM_PROXY_API_KEY", "sk-1", SecretKind::Gateway),
            ("MINE", "ghp_abc", SecretKind::GithubPat),
            ("MINE", "github_pat_abc", SecretKind::GithubPat),
            ("GITHUB_PAT", "0123456789abcdef", SecretKind::GithubPat),
            ("GITHUB_APP_PRIVATE_KEY_PEM", "cmd://op read x", SecretKind::GithubApp),
            ("MINE", "\n-----BEGIN RSA", SecretKind::GithubApp),
            ("ZAI_API_KEY", "x", SecretKind::ApiKey),
        ] {
            assert_eq!(SecretKind::guess(name, value), want, "{name}={value}");
        }
    }

    #[test]
    fn names() {
        for kind in SecretKind::ALL {
            assert_eq!(kind.as_str().parse(), Ok(kind));
            assert_eq!(serde_json::to_value(kind).unwrap(), kind.as_str());
        }
        let wrong = "github".parse::<SecretKind>().unwrap_err();
        assert_eq!(wrong.to_string(), "there is no kind of secret `github`");
        assert!(wrong.hint().is_some());
    }
}
