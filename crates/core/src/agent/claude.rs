//! Builds the invocation of Claude Code. Verified with the real program.

use super::definition::{AgentInvocation, AgentSessionParams};
use crate::env_vars::{ANTHROPIC_AUTH_TOKEN, CLAUDE_CODE_OAUTH_TOKEN};

/// Returns the invocation of one headless session.
pub(super) fn invocation(session: &AgentSessionParams<'_>) -> AgentInvocation {
    let key = match session.key_variable {
        // The variable decides which header it sends and how it identifies itself there.
        CLAUDE_CODE_OAUTH_TOKEN => CLAUDE_CODE_OAUTH_TOKEN,
        ANTHROPIC_AUTH_TOKEN => ANTHROPIC_AUTH_TOKEN,
        _ => "ANTHROPIC_API_KEY",
    };
    let mut start = AgentInvocation::new(&[
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
    // Otherwise it would try ten times, and the run has its own backoff.
    .env("CLAUDE_CODE_MAX_RETRIES", "2")
    // Without this it refuses to run as root.
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
