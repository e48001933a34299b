//! Builds the invocation of goose. Written from its documentation; the program was not run.

use super::definition::{AgentInvocation, AgentSessionParams};
use crate::profile::ProviderProtocol;

/// Returns the invocation of one headless session.
pub(super) fn invocation(session: &AgentSessionParams<'_>) -> AgentInvocation {
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
            // goose expects the bare host, and the rest as a path.
            let (host, path) = split_base_url(session.base_url);
            start
                .env("OPENAI_HOST", host)
                .env("OPENAI_BASE_PATH", &format!("{path}chat/completions"))
                .env("OPENAI_API_KEY", session.key)
        }
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
