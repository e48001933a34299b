//! Claude Code. Verified with the real program.

use super::contract::{Agent, Guarantee, Package, Session, Start, Tested};
use super::messages::Messages;
use super::said::Reader;
use crate::env::{ANTHROPIC_AUTH_TOKEN, CLAUDE_CODE_OAUTH_TOKEN};
use crate::profile::Wire;

#[derive(Debug)]
pub(super) struct Claude;

impl Agent for Claude {
    fn name(&self) -> &'static str {
        "claude"
    }

    fn program(&self) -> &'static str {
        "claude"
    }

    fn package(&self) -> Option<Package> {
        Some(Package::Npm("@anthropic-ai/claude-code"))
    }

    fn native(&self) -> Option<&'static str> {
        Some("@anthropic-ai/claude-code-linux-{arch}/claude")
    }

    fn guarantee(&self) -> Guarantee {
        Guarantee::BaseUrl
    }

    fn wires(&self) -> &'static [Wire] {
        &[Wire::Anthropic]
    }

    fn tested(&self) -> Tested {
        Tested::Real("2.1.197")
    }

    fn start(&self, session: &Session<'_>) -> Start {
        let key = match session.key_variable {
            // The header it sends, and what it says of itself there, depend on the variable.
            CLAUDE_CODE_OAUTH_TOKEN => CLAUDE_CODE_OAUTH_TOKEN,
            ANTHROPIC_AUTH_TOKEN => ANTHROPIC_AUTH_TOKEN,
            _ => "ANTHROPIC_API_KEY",
        };
        let mut start = Start::new(&[
            session.program,
            "--print",
            "--output-format",
            "stream-json",
            "--verbose",
            "--dangerously-skip-permissions",
            "--model",
            session.model,
        ])
        .env("ANTHROPIC_BASE_URL", session.base_url)
        .env(key, session.key)
        .env("CLAUDE_CONFIG_DIR", session.folder)
        .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
        .env("DISABLE_AUTOUPDATER", "1")
        // It would try ten times, and a run has its own way to wait.
        .env("CLAUDE_CODE_MAX_RETRIES", "2")
        // It refuses to run as root elsewhere.
        .env("IS_SANDBOX", "1")
        .stdin(session.prompt);
        for name in [
            "ANTHROPIC_MODEL",
            "ANTHROPIC_SMALL_FAST_MODEL",
            "ANTHROPIC_DEFAULT_OPUS_MODEL",
            "ANTHROPIC_DEFAULT_SONNET_MODEL",
            "ANTHROPIC_DEFAULT_HAIKU_MODEL",
            "CLAUDE_CODE_SUBAGENT_MODEL",
        ] {
            start = start.env(name, session.model);
        }
        start
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::new(Messages::default())
    }
}
