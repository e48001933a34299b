//! goose. Written from its documentation; the program was not run.

use super::contract::{Agent, Guarantee, Package, Session, Start, Tested};
use super::plain::Plain;
use super::said::Reader;
use crate::profile::Wire;

#[derive(Debug)]
pub(super) struct Goose;

impl Agent for Goose {
    fn name(&self) -> &'static str {
        "goose"
    }

    fn program(&self) -> &'static str {
        "goose"
    }

    fn package(&self) -> Option<Package> {
        None
    }

    fn by_hand(&self) -> &'static str {
        "download its release from github.com/block/goose and put `goose` on PATH"
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
        let provider = if session.wire == Wire::Anthropic { "anthropic" } else { "openai" };
        let start = Start::new(&[
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
            Wire::Anthropic => start.env("ANTHROPIC_HOST", session.base_url).env("ANTHROPIC_API_KEY", session.key),
            Wire::Chat | Wire::Responses | Wire::Gemini | Wire::Azure | Wire::Scripted => {
                // It wants the bare host, and the rest as a path.
                let (host, path) = split(session.base_url);
                start
                    .env("OPENAI_HOST", host)
                    .env("OPENAI_BASE_PATH", &format!("{path}chat/completions"))
                    .env("OPENAI_API_KEY", session.key)
            }
        }
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::new(Plain::default())
    }
}

/// Splits a URL into its host with the scheme, and its path with a slash at the end and none at the start.
fn split(url: &str) -> (&str, String) {
    let after = url.find("://").map_or(0, |at| at + 3);
    let slash = url.get(after..).and_then(|rest| rest.find('/')).map(|at| at + after);
    let (host, path) = slash.and_then(|at| url.split_at_checked(at)).unwrap_or((url, ""));
    let path = path.trim_matches('/');
    (host, if path.is_empty() { String::new() } else { format!("{path}/") })
}
