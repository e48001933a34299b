//! Cursor's agent. Written from its documentation; the program was not run.
//!
//! It talks to its maker only and cannot be pointed elsewhere. Its key is exchanged at the start for a token that it
//! keeps, so a stand-in protects the key and not the token, and nobody but the maker counts what it costs.

use super::claude_stream::ClaudeStreamReader;
use super::contract::{Agent, AgentInvocation, AgentPackage, AgentSessionParams, AgentTestLevel, CredentialGuarantee};
use super::output_event::AgentOutputReader;
use crate::profile::ProviderProtocol;

#[derive(Debug)]
pub(super) struct CursorAgent;

impl Agent for CursorAgent {
    fn name(&self) -> &'static str {
        "cursor"
    }

    fn program(&self) -> &'static str {
        "cursor-agent"
    }

    fn package(&self) -> Option<AgentPackage> {
        None
    }

    fn install_hint(&self) -> &'static str {
        "install it from cursor.com/cli; the npm package of that name is somebody else's"
    }

    fn guarantee(&self) -> CredentialGuarantee {
        CredentialGuarantee::OneShotSecret
    }

    fn wires(&self) -> &'static [ProviderProtocol] {
        &[]
    }

    fn test_level(&self) -> AgentTestLevel {
        AgentTestLevel::Documentation
    }

    fn invocation(&self, session: &AgentSessionParams<'_>) -> AgentInvocation {
        let word = session.prompt_argument();
        AgentInvocation::new(&[
            session.program,
            "--print",
            "--force",
            "--trust",
            "--output-format",
            "stream-json",
            "--model",
            session.model,
            &word,
        ])
        .env("CURSOR_API_KEY", session.key)
        .env("CURSOR_CONFIG_DIR", session.folder)
    }

    fn reader(&self) -> Box<dyn AgentOutputReader> {
        Box::new(ClaudeStreamReader::default())
    }
}
