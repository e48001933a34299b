//! Qwen Code. Verified with the real program. It speaks chat completions, as most providers do.

use serde_json::json;

use super::claude_stream::ClaudeStreamReader;
use super::contract::{Agent, AgentInvocation, AgentPackage, AgentSessionParams, AgentTestLevel, CredentialGuarantee};
use super::output_event::AgentOutputReader;
use crate::profile::ProviderProtocol;

#[derive(Debug)]
pub(super) struct QwenAgent;

impl Agent for QwenAgent {
    fn name(&self) -> &'static str {
        "qwen"
    }

    fn program(&self) -> &'static str {
        "qwen"
    }

    fn package(&self) -> Option<AgentPackage> {
        Some(AgentPackage::Npm("@qwen-code/qwen-code"))
    }

    fn guarantee(&self) -> CredentialGuarantee {
        CredentialGuarantee::BaseUrl
    }

    fn wires(&self) -> &'static [ProviderProtocol] {
        &[ProviderProtocol::Chat]
    }

    fn test_level(&self) -> AgentTestLevel {
        AgentTestLevel::Recorded("0.15.10")
    }

    fn invocation(&self, session: &AgentSessionParams<'_>) -> AgentInvocation {
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

    fn reader(&self) -> Box<dyn AgentOutputReader> {
        Box::new(ClaudeStreamReader::default())
    }
}
