//! Builds the invocation of Qwen Code, which uses chat completions, as most providers do. Verified with the real
//! program.

use serde_json::json;

use super::definition::{AgentInvocation, AgentSessionParams};

/// Returns the invocation of one headless session.
pub(super) fn invocation(session: &AgentSessionParams<'_>) -> AgentInvocation {
    let settings = json!({
        "general": {"enableAutoUpdate": false, "disableAutoUpdate": true},
        "privacy": {"usageStatisticsEnabled": false},
        "telemetry": {"enabled": false},
        "model": {"generationConfig": {"maxRetries": 2}},
    });
    AgentInvocation::new(&[session.program, "--yolo", "--auth-type", "openai", "--output-format", "stream-json"])
        .env("OPENAI_BASE_URL", session.base_url)
        .env("OPENAI_API_KEY", session.key)
        .env("OPENAI_MODEL", session.model)
        .env("QWEN_HOME", session.folder)
        .env("QWEN_TELEMETRY_ENABLED", "false")
        .file("settings.json", settings.to_string())
        .stdin(session.prompt)
}
