//! aider. Its options were read in its source; the program was not run.

use super::contract::{Agent, Guarantee, Package, Session, Start, Tested};
use super::plain::Plain;
use super::said::Reader;
use crate::profile::Wire;

#[derive(Debug)]
pub(super) struct Aider;

impl Agent for Aider {
    fn name(&self) -> &'static str {
        "aider"
    }

    fn program(&self) -> &'static str {
        "aider"
    }

    fn package(&self) -> Option<Package> {
        Some(Package::Pip("aider-chat"))
    }

    fn guarantee(&self) -> Guarantee {
        Guarantee::BaseUrl
    }

    fn wires(&self) -> &'static [Wire] {
        &[Wire::Chat, Wire::Anthropic]
    }

    fn tested(&self) -> Tested {
        Tested::Documentation
    }

    fn start(&self, session: &Session<'_>) -> Start {
        // Its models have LiteLLM's names: the provider says which protocol is spoken.
        let provider = if session.wire == Wire::Anthropic { "anthropic" } else { "openai" };
        let model = format!("{provider}/{}", session.model);
        let at = |name: &str| format!("{}/{name}", session.folder.trim_end_matches('/'));
        let start = Start::new(&[
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
            Wire::Anthropic => start
                .env("ANTHROPIC_API_BASE", session.base_url)
                .env("ANTHROPIC_BASE_URL", session.base_url)
                .env("ANTHROPIC_API_KEY", session.key),
            Wire::Chat | Wire::Responses | Wire::Gemini | Wire::Azure | Wire::Scripted => {
                start.env("OPENAI_API_BASE", session.base_url).env("OPENAI_API_KEY", session.key)
            }
        }
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::new(Plain::default())
    }
}
