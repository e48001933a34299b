//! Builds the invocation of aider. Its options come from its source; the program was not run.

use super::definition::{AgentInvocation, AgentSessionParams};
use crate::profile::ProviderProtocol;

/// Returns the invocation of one headless session.
pub(super) fn invocation(session: &AgentSessionParams<'_>) -> AgentInvocation {
    // aider uses LiteLLM's model names: the provider in the name selects the protocol.
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
