//! aider. Its options were read in its source; the program was not run.

use super::contract::{Agent, AgentInvocation, AgentPackage, AgentSessionParams, AgentTestLevel, CredentialGuarantee};
use super::output_event::AgentOutputReader;
use super::plain_text::PlainTextReader;
use crate::profile::ProviderProtocol;

#[derive(Debug)]
pub(super) struct AiderAgent;

impl Agent for AiderAgent {
    fn name(&self) -> &'static str {
        "aider"
    }

    fn program(&self) -> &'static str {
        "aider"
    }

    fn package(&self) -> Option<AgentPackage> {
        Some(AgentPackage::Pip("aider-chat"))
    }

    fn guarantee(&self) -> CredentialGuarantee {
        CredentialGuarantee::BaseUrl
    }

    fn wires(&self) -> &'static [ProviderProtocol] {
        &[ProviderProtocol::Chat, ProviderProtocol::Anthropic]
    }

    fn test_level(&self) -> AgentTestLevel {
        AgentTestLevel::Documentation
    }

    fn invocation(&self, session: &AgentSessionParams<'_>) -> AgentInvocation {
        // Its models have LiteLLM's names: the provider says which protocol is spoken.
        let provider = if session.wire == ProviderProtocol::Anthropic { "anthropic" } else { "openai" };
        let model = format!("{provider}/{}", session.model);
        let at = |name: &str| format!("{}/{name}", session.folder.trim_end_matches('/'));
        let start = AgentInvocation::new(&[
            session.program,
            "--message-file",
            session.prompt_file,
            "--yes-always",
            "--no-stream",
            "--no-pretty",
            "--no-fancy-input",
            "--no-check-update",
            "--no-show-release-notes",
            "--analytics-disable",
            "--no-show-model-warnings",
            "--no-gitignore",
            "--no-detect-urls",
            "--input-history-file",
            &at("input.history"),
            "--chat-history-file",
            &at("chat.history.md"),
            "--model",
            &model,
            "--weak-model",
            &model,
        ]);
        match session.wire {
            ProviderProtocol::Anthropic => start
                .env("ANTHROPIC_API_BASE", session.base_url)
                .env("ANTHROPIC_BASE_URL", session.base_url)
                .env("ANTHROPIC_API_KEY", session.key),
            ProviderProtocol::Chat
            | ProviderProtocol::Responses
            | ProviderProtocol::Gemini
            | ProviderProtocol::Azure
            | ProviderProtocol::Scripted => {
                start.env("OPENAI_API_BASE", session.base_url).env("OPENAI_API_KEY", session.key)
            }
        }
    }

    fn reader(&self) -> Box<dyn AgentOutputReader> {
        Box::new(PlainTextReader::default())
    }
}
