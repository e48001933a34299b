//! Qwen Code. Verified with the real program. It speaks chat completions, as most providers do.

use serde_json::json;

use super::contract::{Agent, Guarantee, Package, Session, Start, Tested};
use super::messages::Messages;
use super::said::Reader;
use crate::profile::Wire;

#[derive(Debug)]
pub(super) struct Qwen;

impl Agent for Qwen {
    fn name(&self) -> &'static str {
        "qwen"
    }

    fn program(&self) -> &'static str {
        "qwen"
    }

    fn package(&self) -> Option<Package> {
        Some(Package::Npm("@qwen-code/qwen-code"))
    }

    fn guarantee(&self) -> Guarantee {
        Guarantee::BaseUrl
    }

    fn wires(&self) -> &'static [Wire] {
        &[Wire::Chat]
    }

    fn tested(&self) -> Tested {
        Tested::Recorded("0.15.10")
    }

    fn start(&self, session: &Session<'_>) -> Start {
        let settings = json!({
            "general": {"enableAutoUpdate": false, "disableAutoUpdate": true},
            "privacy": {"usageStatisticsEnabled": false},
            "telemetry": {"enabled": false},
            "model": {"generationConfig": {"maxRetries": 2}},
        });
        Start::new(&[session.program, "--yolo", "--auth-type", "openai", "--output-format", "stream-json"])
            .env("OPENAI_BASE_URL", session.base_url)
            .env("OPENAI_API_KEY", session.key)
            .env("OPENAI_MODEL", session.model)
            .env("QWEN_HOME", session.folder)
            .env("QWEN_TELEMETRY_ENABLED", "false")
            .file("settings.json", settings.to_string())
            .stdin(session.prompt)
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::new(Messages::default())
    }
}
