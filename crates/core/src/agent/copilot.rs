//! Builds the invocation of GitHub Copilot CLI with a custom provider, and reads its output. Verified with the real
//! program.

use serde_json::Value;

use super::definition::{AgentInvocation, AgentSessionParams};
use super::error_phrases;
use super::output_event::{AgentOutputEvent, AgentOutputReader, AgentResult};
use super::stream_state::{self, AgentStreamState, str_at};
use crate::profile::ProviderProtocol;

/// Returns the invocation of one headless session.
pub(super) fn invocation(session: &AgentSessionParams<'_>) -> AgentInvocation {
    let (kind, wire) = match session.wire {
        ProviderProtocol::Anthropic => ("anthropic", None),
        ProviderProtocol::Responses => ("openai", Some("responses")),
        ProviderProtocol::Chat | ProviderProtocol::Gemini | ProviderProtocol::Azure | ProviderProtocol::Scripted => {
            ("openai", Some("completions"))
        }
    };
    let mut start = AgentInvocation::new(&[session.program, "--allow-all", "--no-color", "--output-format", "json"])
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

/// Reads `--output-format json`.
#[derive(Debug, Default)]
pub(super) struct CopilotStreamReader {
    state: AgentStreamState,
    last_error: Option<(Option<u16>, String)>,
}

impl AgentOutputReader for CopilotStreamReader {
    fn read_line(&mut self, line: &str) -> Vec<AgentOutputEvent> {
        let Some(event) = stream_state::json_object(line) else { return Vec::new() };
        let parsed = match str_at(&event, "/type") {
            "assistant.message" => self.state.record_text(str_at(&event, "/data/content")),
            "tool.execution_start" => {
                let brief = event.pointer("/data/arguments").map(stream_state::summarize_arguments).unwrap_or_default();
                Some(self.state.tool_started(
                    str_at(&event, "/data/toolCallId"),
                    str_at(&event, "/data/toolName"),
                    &brief,
                ))
            }
            "tool.execution_complete" => {
                let code = event.pointer("/data/shellExecution/exitCode").and_then(Value::as_i64);
                let went = event.pointer("/data/success").and_then(Value::as_bool) != Some(false);
                let ok = went && code.is_none_or(|code| code == 0);
                let places = ["/data/result/content", "/data/error/message"];
                let brief = places.iter().map(|place| str_at(&event, place)).find(|text| !text.is_empty());
                Some(self.state.tool_finished(str_at(&event, "/data/toolCallId"), ok, brief.unwrap_or_default()))
            }
            "session.error" => Some(self.error(&event)),
            "session.warning" => Some(stream_state::warning(str_at(&event, "/data/message"))),
            "result" => {
                self.result(&event);
                None
            }
            _ => None,
        };
        parsed.into_iter().collect()
    }

    fn session_result(&self) -> Option<&AgentResult> {
        self.state.result.as_ref()
    }

    fn last_text(&self) -> String {
        self.state.last_text()
    }
}

impl CopilotStreamReader {
    fn error(&mut self, event: &Value) -> AgentOutputEvent {
        let message = str_at(event, "/data/message");
        let status =
            stream_state::status_at(event, "/data/statusCode").or_else(|| error_phrases::quoted_status(message));
        self.last_error = Some((status, stream_state::one_line(message)));
        stream_state::warning(message)
    }

    /// With a custom provider it counts no tokens.
    fn result(&mut self, event: &Value) {
        let ok = event.get("exitCode").and_then(Value::as_i64) == Some(0);
        let (status, why) = match self.last_error.take().filter(|_| !ok) {
            Some((status, why)) => (status, Some(why)),
            None => (None, None),
        };
        let text = self.state.last_text();
        self.state.finish(AgentResult { ok, text, usage: None, cost: None, status, why });
    }
}
