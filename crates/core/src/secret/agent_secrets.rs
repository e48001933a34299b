//! The secrets that each agent can work with.

use crate::{env_vars, text};

/// An agent and the names under which its credential may be stored, in the order in which a run looks for them: any
/// one of them is enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgentSecrets {
    pub name: &'static str,
    pub secrets: &'static [&'static str],
}

const ANTHROPIC: &[&str] =
    &[env_vars::ANTHROPIC_API_KEY, env_vars::ANTHROPIC_AUTH_TOKEN, env_vars::CLAUDE_CODE_OAUTH_TOKEN];
const CHAT: &[&str] =
    &[env_vars::OPENAI_API_KEY, env_vars::ZAI_API_KEY, env_vars::OPENROUTER_API_KEY, env_vars::LITELLM_PROXY_API_KEY];

/// Every agent ralph knows.
pub const AGENTS: &[AgentSecrets] = &[
    AgentSecrets { name: "claude", secrets: ANTHROPIC },
    AgentSecrets { name: "codex", secrets: &[env_vars::OPENAI_API_KEY] },
    AgentSecrets { name: "gemini", secrets: &[env_vars::GEMINI_API_KEY, env_vars::GOOGLE_API_KEY] },
    AgentSecrets { name: "qwen", secrets: CHAT },
    AgentSecrets {
        name: "opencode",
        secrets: &[
            env_vars::ANTHROPIC_API_KEY,
            env_vars::OPENAI_API_KEY,
            env_vars::ZAI_API_KEY,
            env_vars::OPENROUTER_API_KEY,
        ],
    },
    AgentSecrets {
        name: "aider",
        secrets: &[env_vars::OPENAI_API_KEY, env_vars::ANTHROPIC_API_KEY, env_vars::OPENROUTER_API_KEY],
    },
    AgentSecrets { name: "copilot", secrets: CHAT },
    AgentSecrets { name: "goose", secrets: CHAT },
];

/// The reasons why an agent has no credentials of its own.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnknownAgent {
    #[error("there is no agent `{name}`")]
    NotFound { name: String },
    #[error("agent `{name}` connects only to its vendor, so no credential can be supplied for it")]
    VendorOnly { name: String },
    #[error("agent `custom` has no credential of its own: a run gives it the credential of its profile")]
    Custom,
}

impl UnknownAgent {
    pub fn hint(&self) -> Option<String> {
        let all = AGENTS.iter().map(|agent| agent.name);
        Some(match self {
            Self::NotFound { name } => match text::did_you_mean(name, all.clone()) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => format!("it is one of {}", all.collect::<Vec<_>>().join(", ")),
            },
            Self::VendorOnly { .. } => format!("choose one of {}", all.collect::<Vec<_>>().join(", ")),
            Self::Custom => "ralph secret check shows every credential; ralph profile ls the profiles".to_owned(),
        })
    }
}

impl AgentSecrets {
    pub fn find(name: &str) -> Result<&'static Self, UnknownAgent> {
        let found = AGENTS.iter().find(|agent| agent.name == name);
        found.ok_or_else(|| match (name, crate::agent::by_name(name)) {
            ("custom", _) => UnknownAgent::Custom,
            (_, Some(known)) => UnknownAgent::VendorOnly { name: known.name().to_owned() },
            (_, None) => UnknownAgent::NotFound { name: text::strip_control(text::first_line(name, 40)) },
        })
    }

    /// Returns the name under which to store a new credential: a subscription where the agent can use one.
    pub fn preferred_secret(&self) -> &'static str {
        let subscription = self.secrets.iter().find(|name| **name == env_vars::CLAUDE_CODE_OAUTH_TOKEN);
        subscription.or(self.secrets.first()).copied().unwrap_or(env_vars::ANTHROPIC_API_KEY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile;
    use crate::secret::known_credentials;

    #[test]
    fn agents() {
        for agent in AGENTS {
            assert_eq!(AgentSecrets::find(agent.name), Ok(agent));
            for name in agent.secrets {
                assert!(known_credentials().contains(name), "{name} of {}", agent.name);
            }
        }
        assert_eq!(AgentSecrets::find("claude").map(AgentSecrets::preferred_secret), Ok("CLAUDE_CODE_OAUTH_TOKEN"));
        assert_eq!(AgentSecrets::find("codex").map(AgentSecrets::preferred_secret), Ok("OPENAI_API_KEY"));
        let wrong = AgentSecrets::find("cloude").unwrap_err();
        assert_eq!(
            (wrong.to_string(), wrong.hint()),
            ("there is no agent `cloude`".to_owned(), Some("did you mean `claude`?".to_owned()))
        );
    }

    /// Every agent that `ralph agent ls` shows has credentials here, or a reason why not.
    #[test]
    fn every_agent_is_listed() {
        for agent in crate::agent::all() {
            let found = AgentSecrets::find(agent.name());
            match found {
                Ok(found) => assert_eq!(found.name, agent.name()),
                Err(error) => assert!(matches!(error, UnknownAgent::VendorOnly { .. }) && agent.wires().is_empty()),
            }
        }
        assert_eq!(AgentSecrets::find("custom"), Err(UnknownAgent::Custom));
    }

    /// The listed order of an agent's credentials is the order its runs use.
    #[test]
    fn the_order_matches_that_of_runs() {
        for (agent, model) in [
            ("claude", "anthropic/claude-sonnet-4-5"),
            ("codex", "openai/gpt-5-codex"),
            ("gemini", "gemini/gemini-2.5-pro"),
        ] {
            let yaml = format!("profiles:\n  p: {{litellm_model: \"{model}\", max_output_tokens: 1}}\n");
            let profiles = profile::parse(&yaml, "models.yaml").expect("profiles");
            let profile = profiles.values().next().expect("one");
            let endpoint = profile::resolve_endpoint(profile, &crate::env_vars::Env::default()).expect("an endpoint");
            let names = profile::credential_names(profile, &endpoint);
            assert_eq!(
                AgentSecrets::find(agent).map(|agent| agent.secrets.to_vec()),
                Ok(names.iter().map(String::as_str).collect())
            );
        }
    }
}
