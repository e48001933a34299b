//! Builds the invocation of Gemini CLI and reads its output. Verified with the real program.

use serde_json::{Value, json};

use super::definition::{AgentInvocation, AgentSessionParams};
use super::error_phrases;
use super::output_event::{AgentOutputEvent, AgentOutputReader, AgentResult};
use super::stream_state::{self, AgentStreamState, count_at, str_at};
use crate::price::TokenUsage;

/// Returns the invocation of one headless session.
pub(super) fn invocation(session: &AgentSessionParams<'_>) -> AgentInvocation {
    let settings = json!({
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "general": {"enableAutoUpdate": false, "maxAttempts": 3},
        "privacy": {"usageStatisticsEnabled": false},
        "telemetry": {"enabled": false},
    });
    AgentInvocation::new(&[
        session.program,
        "--yolo",
        "--skip-trust",
        "--model",
        session.model,
        "--output-format",
        "stream-json",
    ])
    .env("GOOGLE_GEMINI_BASE_URL", session.base_url)
    .env("GEMINI_API_KEY", session.key)
    .env("GEMINI_CLI_HOME", session.folder)
    .env("GEMINI_TELEMETRY_ENABLED", "false")
    .file(".gemini/settings.json", settings.to_string())
    .stdin(session.prompt)
}

/// Reads `--output-format stream-json`. Texts arrive in pieces and are reported when another event follows.
#[derive(Debug, Default)]
pub(super) struct GeminiStreamReader {
    state: AgentStreamState,
    text: String,
}

impl AgentOutputReader for GeminiStreamReader {
    fn read_line(&mut self, line: &str) -> Vec<AgentOutputEvent> {
        let Some(event) = stream_state::json_object(line) else { return Vec::new() };
        let kind = str_at(&event, "/type");
        if kind == "message" {
            let mine = str_at(&event, "/role") == "assistant";
            stream_state::append_bounded(&mut self.text, if mine { str_at(&event, "/content") } else { "" });
            return Vec::new();
        }
        let text = std::mem::take(&mut self.text);
        let mut events: Vec<AgentOutputEvent> = self.state.record_text(&text).into_iter().collect();
        let id = str_at(&event, "/tool_id");
        match kind {
            "tool_use" => {
                let brief = event.get("parameters").map(stream_state::summarize_arguments).unwrap_or_default();
                events.push(self.state.tool_started(id, str_at(&event, "/tool_name"), &brief));
            }
            "tool_result" => {
                let ok = str_at(&event, "/status") == "success";
                let places = ["/output", "/error/message"];
                let brief = places.iter().map(|place| str_at(&event, place)).find(|text| !text.is_empty());
                events.push(self.state.tool_finished(id, ok, brief.unwrap_or_default()));
            }
            "error" => events.push(stream_state::warning(str_at(&event, "/message"))),
            "result" => self.state.finish(parse_result(&event, self.state.last_text())),
            _ => (),
        }
        events
    }

    fn session_result(&self) -> Option<&AgentResult> {
        self.state.result.as_ref()
    }

    fn last_text(&self) -> String {
        self.state.last_text()
    }
}

fn parse_result(event: &Value, text: String) -> AgentResult {
    let ok = str_at(event, "/status") == "success";
    let why = (!ok).then(|| str_at(event, "/error/message").to_owned());
    AgentResult {
        ok,
        text,
        usage: event.get("stats").filter(|stats| stats.is_object()).map(parse_usage),
        cost: None,
        status: why.as_deref().and_then(error_phrases::quoted_status),
        why,
    }
}

/// Returns the token usage. The reported input includes cache reads, and the total includes reasoning.
fn parse_usage(stats: &Value) -> TokenUsage {
    let (input, cached, output) =
        (count_at(stats, "/input_tokens"), count_at(stats, "/cached"), count_at(stats, "/output_tokens"));
    let reasoning = count_at(stats, "/total_tokens").saturating_sub(input).saturating_sub(output);
    TokenUsage {
        input: input.saturating_sub(cached),
        cached_input: cached,
        output: output.saturating_add(reasoning),
        reasoning,
        ..TokenUsage::default()
    }
}
