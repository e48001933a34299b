//! Builds the invocation of opencode, which supports every protocol, and reads its output. Verified with the real
//! program.

use serde_json::{Value, json};

use super::definition::{AgentInvocation, AgentSessionParams};
use super::error_phrases;
use super::output_event::{AgentOutputEvent, AgentOutputReader, AgentResult};
use super::stream_state::{self, AgentStreamState, count_at, str_at};
use crate::money::MicroUsd;
use crate::price::TokenUsage;
use crate::profile::ProviderProtocol;

/// Returns the invocation of one headless session.
pub(super) fn invocation(session: &AgentSessionParams<'_>) -> AgentInvocation {
    let model = format!("lent/{}", session.model);
    let at = |name: &str| format!("{}/{name}", session.folder.trim_end_matches('/'));
    AgentInvocation::new(&[session.program, "run", "--format", "json", "--auto", "--pure", "--model", &model])
        .env("OPENCODE_CONFIG", &at("opencode.json"))
        .env("OPENCODE_DISABLE_AUTOUPDATE", "1")
        // Otherwise it downloads lists of models and language servers, which the egress proxy refuses.
        .env("OPENCODE_DISABLE_MODELS_FETCH", "1")
        .env("OPENCODE_DISABLE_LSP_DOWNLOAD", "1")
        .env("XDG_DATA_HOME", &at("data"))
        .env("XDG_CONFIG_HOME", &at("config"))
        .env("XDG_STATE_HOME", &at("state"))
        .env("XDG_CACHE_HOME", &at("cache"))
        .env("RALPH_AGENT_KEY", session.key)
        .file("opencode.json", settings(session, &model))
        .stdin(session.prompt)
}

fn settings(session: &AgentSessionParams<'_>, model: &str) -> String {
    let base = session.base_url.trim_end_matches('/');
    // Each library adds its own path, and expects the version in the base URL.
    let (library, base_url) = match session.wire {
        ProviderProtocol::Anthropic => ("@ai-sdk/anthropic", format!("{base}/v1")),
        ProviderProtocol::Gemini => ("@ai-sdk/google", format!("{base}/v1beta")),
        ProviderProtocol::Responses => ("@ai-sdk/openai", base.to_owned()),
        ProviderProtocol::Chat | ProviderProtocol::Azure | ProviderProtocol::Scripted => {
            ("@ai-sdk/openai-compatible", base.to_owned())
        }
    };
    let options = json!({"baseURL": base_url, "apiKey": "{env:RALPH_AGENT_KEY}"});
    let models = json!({session.model: {"name": session.model}});
    json!({
        "model": model,
        // Otherwise it would choose a small model itself, and the egress proxy allows only the granted one.
        "small_model": model,
        "share": "disabled",
        "autoupdate": false,
        "provider": {"lent": {"npm": library, "options": options, "models": models}},
    })
    .to_string()
}

/// Reads `run --format json`: the parts of each step. There is no result; the step without tool calls is the last.
#[derive(Debug, Default)]
pub(super) struct OpencodeStreamReader {
    state: AgentStreamState,
    usage: TokenUsage,
    cost: Option<MicroUsd>,
}

impl AgentOutputReader for OpencodeStreamReader {
    fn read_line(&mut self, line: &str) -> Vec<AgentOutputEvent> {
        let Some(event) = stream_state::json_object(line) else { return Vec::new() };
        match str_at(&event, "/type") {
            "text" => self.state.record_text(str_at(&event, "/part/text")).into_iter().collect(),
            "tool_use" => self.tool(&event),
            "step_finish" => {
                self.step(&event);
                Vec::new()
            }
            "error" => {
                self.fail(&event);
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    fn session_result(&self) -> Option<&AgentResult> {
        self.state.result.as_ref()
    }

    fn last_text(&self) -> String {
        self.state.last_text()
    }
}

impl OpencodeStreamReader {
    /// Returns both events of a tool call, because opencode reports it only when it has ended.
    fn tool(&mut self, event: &Value) -> Vec<AgentOutputEvent> {
        let (id, state) = (str_at(event, "/part/callID"), event.pointer("/part/state").unwrap_or(&Value::Null));
        let brief = state.get("input").map(stream_state::summarize_arguments).unwrap_or_default();
        let begun = self.state.tool_started(id, str_at(event, "/part/tool"), &brief);
        let code = state.pointer("/metadata/exit").and_then(Value::as_i64);
        let ok = str_at(state, "/status") == "completed" && code.is_none_or(|code| code == 0);
        let output = ["/output", "/error"].iter().map(|place| str_at(state, place)).find(|text| !text.is_empty());
        vec![begun, self.state.tool_finished(id, ok, output.unwrap_or_default())]
    }

    fn step(&mut self, event: &Value) {
        let Some(part) = event.get("part") else { return };
        let reasoning = count_at(part, "/tokens/reasoning");
        self.usage += TokenUsage {
            input: count_at(part, "/tokens/input"),
            cached_input: count_at(part, "/tokens/cache/read"),
            cache_write: count_at(part, "/tokens/cache/write"),
            output: count_at(part, "/tokens/output").saturating_add(reasoning),
            reasoning,
            ..TokenUsage::default()
        };
        if let Some(cost) = part.get("cost").and_then(Value::as_f64) {
            *self.cost.get_or_insert_default() += MicroUsd::from_usd(cost);
        }
        // A step that ends with tool calls is followed by another.
        let ended = matches!(str_at(part, "/reason"), "stop" | "length" | "content-filter");
        let ok = str_at(part, "/reason") == "stop";
        if ended && self.state.result.as_ref().is_none_or(|finished| finished.ok) {
            let why = (!ok).then(|| format!("its last step ended with `{}`", str_at(part, "/reason")));
            let text = self.state.last_text();
            self.state.finish(AgentResult { ok, text, usage: Some(self.usage), cost: self.cost, status: None, why });
        }
    }

    fn fail(&mut self, event: &Value) {
        let places = ["/error/data/message", "/error/message", "/error/name", "/message"];
        let why = places.iter().map(|place| str_at(event, place)).find(|text| !text.is_empty()).unwrap_or_default();
        let status =
            stream_state::status_at(event, "/error/data/statusCode").or_else(|| error_phrases::quoted_status(why));
        let usage = (self.usage != TokenUsage::default()).then_some(self.usage);
        let why = Some(why.to_owned());
        self.state.finish(AgentResult { ok: false, text: String::new(), usage, cost: self.cost, status, why });
    }
}
