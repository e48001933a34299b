//! Cursor's agent. Written from its documentation; the program was not run.
//!
//! It talks to its maker only and cannot be pointed elsewhere. Its key is exchanged at the start for a token that it
//! keeps, so a stand-in protects the key and not the token, and nobody but the maker counts what it costs.

use super::contract::{AgentInvocation, AgentSessionParams};

/// Returns what starts one session without a person.
pub(super) fn invocation(session: &AgentSessionParams<'_>) -> AgentInvocation {
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
