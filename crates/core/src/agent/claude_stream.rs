//! Reads the JSON-lines output of `claude`, whose format other agents share: messages in the format of the Messages
//! API.

use serde_json::Value;

use super::error_phrases;
use super::output_event::{AgentOutputEvent, AgentOutputReader, AgentResult};
use super::stream_state::{self, AgentStreamState, count_at, str_at};
use crate::money::MicroUsd;
use crate::price::TokenUsage;

/// Reads the output of `claude`, `qwen` and `cursor-agent`.
#[derive(Debug, Default)]
pub(super) struct ClaudeStreamReader {
    state: AgentStreamState,
}

impl AgentOutputReader for ClaudeStreamReader {
    fn read_line(&mut self, line: &str) -> Vec<AgentOutputEvent> {
        let Some(event) = stream_state::json_object(line) else { return Vec::new() };
        match str_at(&event, "/type") {
            "assistant" => self.assistant(&event),
            "user" => self.user(&event),
            "tool_call" => self.tool_call(&event).into_iter().collect(),
            "system" if str_at(&event, "/subtype") == "api_retry" => vec![parse_retry(&event)],
            "result" => {
                self.state.finish(parse_result(&event));
                Vec::new()
            }
            "error" => vec![stream_state::warning(&parse_error(&event))],
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

impl ClaudeStreamReader {
    fn assistant(&mut self, event: &Value) -> Vec<AgentOutputEvent> {
        let parts = event.pointer("/message/content").and_then(Value::as_array);
        let events = parts.into_iter().flatten().filter_map(|part| match str_at(part, "/type") {
            "text" => self.state.record_text(str_at(part, "/text")),
            "tool_use" => {
                let brief = part.get("input").map(stream_state::summarize_arguments).unwrap_or_default();
                Some(self.state.tool_started(str_at(part, "/id"), str_at(part, "/name"), &brief))
            }
            _ => None,
        });
        events.collect()
    }

    fn user(&mut self, event: &Value) -> Vec<AgentOutputEvent> {
        let parts = event.pointer("/message/content").and_then(Value::as_array);
        let results = parts.into_iter().flatten().filter(|part| str_at(part, "/type") == "tool_result");
        results
            .map(|part| {
                let ok = part.get("is_error").and_then(Value::as_bool) != Some(true);
                let brief = part.get("content").map(stream_state::content_text).unwrap_or_default();
                self.state.tool_finished(str_at(part, "/tool_use_id"), ok, &brief)
            })
            .collect()
    }

    /// Reads a tool call of `cursor-agent`: `{"tool_call":{"readToolCall":{"args":…,"result":{"success":…}}}}`.
    fn tool_call(&mut self, event: &Value) -> Option<AgentOutputEvent> {
        let (name, call) = event.get("tool_call")?.as_object()?.iter().next()?;
        let id = str_at(event, "/call_id");
        match str_at(event, "/subtype") {
            "started" => {
                let name = name.strip_suffix("ToolCall").unwrap_or(name);
                let arguments = call.get("args").or_else(|| call.get("arguments"));
                Some(self.state.tool_started(
                    id,
                    name,
                    &arguments.map(stream_state::summarize_arguments).unwrap_or_default(),
                ))
            }
            "completed" => {
                let ok =
                    call.get("result").and_then(Value::as_object).is_none_or(|result| result.contains_key("success"));
                Some(self.state.tool_finished(id, ok, ""))
            }
            _ => None,
        }
    }
}

fn parse_retry(event: &Value) -> AgentOutputEvent {
    let (attempt, most) = (count_at(event, "/attempt"), count_at(event, "/max_retries"));
    let why = stream_state::one_line(str_at(event, "/error"));
    AgentOutputEvent::Retry {
        status: stream_state::status_at(event, "/error_status"),
        why: format!("{why} (try {attempt} of {most})"),
    }
}

/// Parses the result by `is_error` and never by `subtype`: a refused call is a `success` with an error in it.
fn parse_result(event: &Value) -> AgentResult {
    let text = str_at(event, "/result");
    // `qwen` reports success when its last call failed, and exits with code 0.
    let refused = text.starts_with("[API Error: ");
    let ok = event.get("is_error").and_then(Value::as_bool) == Some(false) && !refused;
    let why = (!ok).then(|| [text.to_owned(), parse_error(event), str_at(event, "/subtype").to_owned()]);
    let why = why.and_then(|all| all.into_iter().find(|why| !why.is_empty()));
    let status = stream_state::status_at(event, "/api_error_status");
    AgentResult {
        ok,
        text: text.to_owned(),
        usage: parse_usage(event),
        cost: event.get("total_cost_usd").and_then(Value::as_f64).map(MicroUsd::from_usd),
        status: status.or_else(|| why.as_deref().and_then(error_phrases::quoted_status)),
        why,
    }
}

/// Returns the message of an error, whichever field holds it.
fn parse_error(event: &Value) -> String {
    if let Some(errors) = event.get("errors").and_then(Value::as_array) {
        return errors.iter().filter_map(Value::as_str).take(4).collect::<Vec<_>>().join("; ");
    }
    let places = ["/error/message", "/error", "/message"];
    places.iter().map(|place| str_at(event, place)).find(|text| !text.is_empty()).unwrap_or_default().to_owned()
}

/// Returns the token usage. The sum over all models includes subagents; the plain field only the main conversation.
fn parse_usage(event: &Value) -> Option<TokenUsage> {
    let mut all = TokenUsage::default();
    if let Some(models) = event.get("modelUsage").and_then(Value::as_object).filter(|models| !models.is_empty()) {
        for model in models.values() {
            all += TokenUsage {
                input: count_at(model, "/inputTokens"),
                cached_input: count_at(model, "/cacheReadInputTokens"),
                cache_write: count_at(model, "/cacheCreationInputTokens"),
                output: count_at(model, "/outputTokens"),
                ..TokenUsage::default()
            };
        }
        return Some(all);
    }
    let usage = event.get("usage").filter(|usage| usage.is_object())?;
    let cached = count_at(usage, "/cache_read_input_tokens");
    // If there is a total, the input includes cache reads.
    let within = usage.get("total_tokens").is_some();
    let input = count_at(usage, "/input_tokens");
    Some(TokenUsage {
        input: if within { input.saturating_sub(cached) } else { input },
        cached_input: cached,
        cache_write: count_at(usage, "/cache_creation_input_tokens"),
        output: count_at(usage, "/output_tokens"),
        ..TokenUsage::default()
    })
}
