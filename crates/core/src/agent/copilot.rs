//! GitHub Copilot CLI, with a provider of one's own. Verified with the real program.

use serde_json::Value;

use super::contract::{Agent, Guarantee, Package, Session, Start, Tested};
use super::ear::{self, Ear, str_at};
use super::said::{Finished, Reader, Said};
use super::words;
use crate::profile::Wire;

#[derive(Debug)]
pub(super) struct Copilot;

impl Agent for Copilot {
    fn name(&self) -> &'static str {
        "copilot"
    }

    fn program(&self) -> &'static str {
        "copilot"
    }

    fn package(&self) -> Option<Package> {
        Some(Package::Npm("@github/copilot"))
    }

    fn native(&self) -> Option<&'static str> {
        Some("@github/copilot-linux-{arch}/copilot")
    }

    fn guarantee(&self) -> Guarantee {
        Guarantee::BaseUrl
    }

    fn wires(&self) -> &'static [Wire] {
        &[Wire::Chat, Wire::Responses, Wire::Anthropic]
    }

    fn tested(&self) -> Tested {
        Tested::Recorded("1.0.102")
    }

    fn start(&self, session: &Session<'_>) -> Start {
        let (kind, wire) = match session.wire {
            Wire::Anthropic => ("anthropic", None),
            Wire::Responses => ("openai", Some("responses")),
            Wire::Chat | Wire::Gemini | Wire::Azure | Wire::Scripted => ("openai", Some("completions")),
        };
        let mut start = Start::new(&[session.program, "--allow-all", "--no-color", "--output-format", "json"])
            .env("COPILOT_OFFLINE", "true")
            .env("COPILOT_AUTO_UPDATE", "false")
            .env("COPILOT_HOME", session.folder)
            .env("COPILOT_PROVIDER_TYPE", kind)
            .env("COPILOT_PROVIDER_BASE_URL", session.base_url)
            .env("COPILOT_PROVIDER_API_KEY", session.key)
            .env("COPILOT_MODEL", session.model)
            .stdin(session.prompt);
        if let Some(wire) = wire {
            start = start.env("COPILOT_PROVIDER_WIRE_API", wire);
        }
        start
    }

    fn reader(&self) -> Box<dyn Reader> {
        Box::new(Stream::default())
    }
}

/// Reads `--output-format json`.
#[derive(Debug, Default)]
struct Stream {
    ear: Ear,
    last_error: Option<(Option<u16>, String)>,
}

impl Reader for Stream {
    fn line(&mut self, line: &str) -> Vec<Said> {
        let Some(event) = ear::object(line) else { return Vec::new() };
        let said = match str_at(&event, "/type") {
            "assistant.message" => self.ear.text(str_at(&event, "/data/content")),
            "tool.execution_start" => {
                let brief = event.pointer("/data/arguments").map(ear::brief).unwrap_or_default();
                Some(self.ear.tool(str_at(&event, "/data/toolCallId"), str_at(&event, "/data/toolName"), &brief))
            }
            "tool.execution_complete" => {
                let code = event.pointer("/data/shellExecution/exitCode").and_then(Value::as_i64);
                let went = event.pointer("/data/success").and_then(Value::as_bool) != Some(false);
                let ok = went && code.is_none_or(|code| code == 0);
                let places = ["/data/result/content", "/data/error/message"];
                let brief = places.iter().map(|place| str_at(&event, place)).find(|text| !text.is_empty());
                Some(self.ear.tool_done(str_at(&event, "/data/toolCallId"), ok, brief.unwrap_or_default()))
            }
            "session.error" => Some(self.error(&event)),
            "session.warning" => Some(ear::trouble(str_at(&event, "/data/message"))),
            "result" => {
                self.result(&event);
                None
            }
            _ => None,
        };
        said.into_iter().collect()
    }

    fn finished(&self) -> Option<&Finished> {
        self.ear.finished.as_ref()
    }

    fn text(&self) -> String {
        self.ear.words()
    }
}

impl Stream {
    fn error(&mut self, event: &Value) -> Said {
        let message = str_at(event, "/data/message");
        let status = ear::status_at(event, "/data/statusCode").or_else(|| words::status(message));
        self.last_error = Some((status, ear::one_line(message)));
        ear::trouble(message)
    }

    /// With a provider of one's own it counts no tokens.
    fn result(&mut self, event: &Value) {
        let ok = event.get("exitCode").and_then(Value::as_i64) == Some(0);
        let (status, why) = match self.last_error.take().filter(|_| !ok) {
            Some((status, why)) => (status, Some(why)),
            None => (None, None),
        };
        let text = self.ear.words();
        self.ear.finish(Finished { ok, text, usage: None, cost: None, status, why });
    }
}
