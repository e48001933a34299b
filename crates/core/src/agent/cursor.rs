//! Builds the invocation of Cursor's agent. Written from its documentation; the program was not run.
//!
//! It talks only to Cursor's servers; there is no setting for another endpoint. It exchanges its key at the start for a
//! token that it keeps, so a phantom protects the key and not the token, and only Cursor knows what the calls cost.

use super::definition::{AgentInvocation, AgentSessionParams};

/// Returns the invocation of one headless session.
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
