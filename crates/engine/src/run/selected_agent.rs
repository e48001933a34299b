//! Finds the agent that a run was started with, and the protocol that it shares with a provider.

use ralph_core::agent::{self, Agent};
use ralph_core::event::PinnedAgent;
use ralph_core::profile::ProviderProtocol;

use crate::error::Error;

/// The agent that a run was started with.
#[derive(Debug)]
pub(crate) enum SelectedAgent {
    Known(&'static dyn Agent),
    Custom(agent::CustomAgent),
}

impl SelectedAgent {
    pub(crate) fn of(pinned: &PinnedAgent) -> Result<Self, Error> {
        let unknown = |why: String| Error::Agent { name: pinned.name.clone(), why };
        match &pinned.template {
            Some(template) => {
                agent::CustomAgent::new(template).map(Self::Custom).map_err(|error| unknown(error.to_string()))
            }
            None => agent::by_name(&pinned.name)
                .map(Self::Known)
                .ok_or_else(|| unknown("ralph does not know it; `ralph agent ls` shows those it knows".to_owned())),
        }
    }

    pub(crate) fn get(&self) -> &dyn Agent {
        match self {
            Self::Known(agent) => *agent,
            Self::Custom(custom) => custom,
        }
    }
}

/// Providers that serve both protocols of OpenAI.
const DUAL_PROTOCOL_PROVIDERS: [&str; 3] = ["openai", "azure", "litellm_proxy"];

/// Returns the provider in the name of a model.
pub(crate) fn provider(model: &str) -> &str {
    model.split('/').next().unwrap_or(model)
}

/// Returns the protocol in which an agent can talk to a provider.
pub(crate) fn shared_protocol(agent: &dyn Agent, wire: ProviderProtocol, provider: &str) -> Option<ProviderProtocol> {
    let openai = |wire: &ProviderProtocol| {
        matches!(wire, ProviderProtocol::Chat | ProviderProtocol::Responses)
            && DUAL_PROTOCOL_PROVIDERS.contains(&provider)
    };
    let same = agent.wires().iter().find(|own| **own == wire);
    same.or_else(|| agent.wires().iter().find(|own| openai(own) && openai(&wire))).copied()
}

/// Says why an agent cannot use a profile, and which profile it could use.
pub(crate) fn protocol_mismatch(agent: &dyn Agent, wire: ProviderProtocol) -> String {
    let supported: Vec<String> = agent.wires().iter().map(ToString::to_string).collect();
    format!(
        "its provider's protocol is {wire}, and the agent `{}` supports {}; choose a profile whose provider the agent supports",
        agent.name(),
        if supported.is_empty() { "only its vendor's own service".to_owned() } else { supported.join(" or ") }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(agent: &str, wire: ProviderProtocol, provider: &str, want: Option<ProviderProtocol>) {
        assert_eq!(
            shared_protocol(agent::by_name(agent).unwrap(), wire, provider),
            want,
            "{agent} {wire:?} {provider}"
        );
    }

    #[test]
    fn agents_and_providers() {
        check("claude", ProviderProtocol::Anthropic, "anthropic", Some(ProviderProtocol::Anthropic));
        check("claude", ProviderProtocol::Chat, "openai", None);
        check("codex", ProviderProtocol::Responses, "openai", Some(ProviderProtocol::Responses));
        check("codex", ProviderProtocol::Chat, "openai", Some(ProviderProtocol::Responses));
        check("codex", ProviderProtocol::Chat, "litellm_proxy", Some(ProviderProtocol::Responses));
        // codex supports no protocol of providers that offer chat only.
        check("codex", ProviderProtocol::Chat, "zai", None);
        check("qwen", ProviderProtocol::Chat, "zai", Some(ProviderProtocol::Chat));
        check("gemini", ProviderProtocol::Gemini, "gemini", Some(ProviderProtocol::Gemini));
        check("cursor", ProviderProtocol::Anthropic, "anthropic", None);
        check("claude", ProviderProtocol::Scripted, "scripted", None);
    }
}
