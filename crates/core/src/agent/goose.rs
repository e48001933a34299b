//! goose. Written from its documentation; the program was not run.

use super::contract::{Agent, AgentInvocation, AgentPackage, AgentSessionParams, AgentTestLevel, CredentialGuarantee};
use super::output_event::AgentOutputReader;
use super::plain_text::PlainTextReader;
use crate::profile::ProviderProtocol;

#[derive(Debug)]
pub(super) struct GooseAgent;

impl Agent for GooseAgent {
    fn name(&self) -> &'static str {
        "goose"
    }

    fn program(&self) -> &'static str {
        "goose"
    }

    fn package(&self) -> Option<AgentPackage> {
        None
    }

    fn install_hint(&self) -> &'static str {
        "download its release from github.com/block/goose and put `goose` on PATH"
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
        let provider = if session.wire == ProviderProtocol::Anthropic { "anthropic" } else { "openai" };
        let start = AgentInvocation::new(&[
            session.program,
            "run",
            "--instructions",
            session.prompt_file,
            "--no-session",
            "--quiet",
            "--provider",
            provider,
            "--model",
            session.model,
        ])
        .env("GOOSE_MODE", "auto")
        .env("GOOSE_PROVIDER", provider)
        .env("GOOSE_MODEL", session.model)
        .env("GOOSE_DISABLE_KEYRING", "1")
        .env("XDG_CONFIG_HOME", session.folder);
        match session.wire {
            ProviderProtocol::Anthropic => {
                start.env("ANTHROPIC_HOST", session.base_url).env("ANTHROPIC_API_KEY", session.key)
            }
            ProviderProtocol::Chat
            | ProviderProtocol::Responses
            | ProviderProtocol::Gemini
            | ProviderProtocol::Azure
            | ProviderProtocol::Scripted => {
                // It wants the bare host, and the rest as a path.
                let (host, path) = split_base_url(session.base_url);
                start
                    .env("OPENAI_HOST", host)
                    .env("OPENAI_BASE_PATH", &format!("{path}chat/completions"))
                    .env("OPENAI_API_KEY", session.key)
            }
        }
    }

    fn reader(&self) -> Box<dyn AgentOutputReader> {
        Box::new(PlainTextReader::default())
    }
}

/// Splits a URL into its host with the scheme, and its path with a slash at the end and none at the start.
fn split_base_url(url: &str) -> (&str, String) {
    let after = url.find("://").map_or(0, |at| at + 3);
    let slash = url.get(after..).and_then(|rest| rest.find('/')).map(|at| at + after);
    let (host, path) = slash.and_then(|at| url.split_at_checked(at)).unwrap_or((url, ""));
    let path = path.trim_matches('/');
    (host, if path.is_empty() { String::new() } else { format!("{path}/") })
}
