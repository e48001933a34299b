//! The stream of `claude`, which others copied: one JSON object a line, messages as the Messages API has them.

use serde_json::Value;

use super::ear::{self, Ear, count_at, str_at};
use super::said::{Finished, Reader, Said};
use super::words;
use crate::money::Micros;
use crate::price::Usage;

/// Reads the stream of `claude`, `qwen` and `cursor-agent`.
#[derive(Debug, Default)]
pub(super) struct Messages {
    ear: Ear,
}

impl Reader for Messages {
    fn line(&mut self, line: &str) -> Vec<Said> {
        let Some(event) = ear::object(line) else { return Vec::new() };
        match str_at(&event, "/type") {
            "assistant" => self.assistant(&event),
            "user" => self.user(&event),
            "tool_call" => self.tool_call(&event).into_iter().collect(),
            "system" if str_at(&event, "/subtype") == "api_retry" => vec![retry(&event)],
            "result" => {
                self.ear.finish(finished(&event));
                Vec::new()
            }
            "error" => vec![ear::trouble(&error(&event))],
            _ => Vec::new(),
        }
    }

    fn finished(&self) -> Option<&Finished> {
        self.ear.finished.as_ref()
    }

    fn text(&self) -> String {
        self.ear.words()
    }
}

impl Messages {
    fn assistant(&mut self, event: &Value) -> Vec<Said> {
        let parts = event.pointer("/message/content").and_then(Value::as_array);
        let said = parts.into_iter().flatten().filter_map(|part| match str_at(part, "/type") {
            "text" => self.ear.text(str_at(part, "/text")),
            "tool_use" => {
                let brief = part.get("input").map(ear::brief).unwrap_or_default();
                Some(self.ear.tool(str_at(part, "/id"), str_at(part, "/name"), &brief))
            }
            _ => None,
        });
        said.collect()
    }

    fn user(&mut self, event: &Value) -> Vec<Said> {
        let parts = event.pointer("/message/content").and_then(Value::as_array);
        let results = parts.into_iter().flatten().filter(|part| str_at(part, "/type") == "tool_result");
        results
            .map(|part| {
                let ok = part.get("is_error").and_then(Value::as_bool) != Some(true);
                let brief = part.get("content").map(ear::content_text).unwrap_or_default();
                self.ear.tool_done(str_at(part, "/tool_use_id"), ok, &brief)
            })
            .collect()
    }

    /// A tool of `cursor-agent`: `{"tool_call":{"readToolCall":{"args":…,"result":{"success":…}}}}`.
    fn tool_call(&mut self, event: &Value) -> Option<Said> {
        let (name, call) = event.get("tool_call")?.as_object()?.iter().next()?;
        let id = str_at(event, "/call_id");
        match str_at(event, "/subtype") {
            "started" => {
                let name = name.strip_suffix("ToolCall").unwrap_or(name);
                let arguments = call.get("args").or_else(|| call.get("arguments"));
                Some(self.ear.tool(id, name, &arguments.map(ear::brief).unwrap_or_default()))
            }
            "completed" => {
                let ok =
                    call.get("result").and_then(Value::as_object).is_none_or(|result| result.contains_key("success"));
                Some(self.ear.tool_done(id, ok, ""))
            }
            _ => None,
        }
    }
}

fn retry(event: &Value) -> Said {
    let (attempt, most) = (count_at(event, "/attempt"), count_at(event, "/max_retries"));
    let why = ear::one_line(str_at(event, "/error"));
    Said::Retry { status: ear::status_at(event, "/error_status"), why: format!("{why} (try {attempt} of {most})") }
}

/// Judges by `is_error` and never by `subtype`: a refused call is a `success` with an error in it.
fn finished(event: &Value) -> Finished {
    let text = str_at(event, "/result");
    // `qwen` calls it a success when its last call failed, and ends with code 0.
    let refused = text.starts_with("[API Error: ");
    let ok = event.get("is_error").and_then(Value::as_bool) == Some(false) && !refused;
    let why = (!ok).then(|| [text.to_owned(), error(event), str_at(event, "/subtype").to_owned()]);
    let why = why.and_then(|all| all.into_iter().find(|why| !why.is_empty()));
    let status = ear::status_at(event, "/api_error_status");
    Finished {
        ok,
        text: text.to_owned(),
        usage: usage(event),
        cost: event.get("total_cost_usd").and_then(Value::as_f64).map(Micros::from_usd),
        status: status.or_else(|| why.as_deref().and_then(words::status)),
        why,
    }
}

/// Returns the words of an error, wherever they stand.
fn error(event: &Value) -> String {
    if let Some(errors) = event.get("errors").and_then(Value::as_array) {
        return errors.iter().filter_map(Value::as_str).take(4).collect::<Vec<_>>().join("; ");
    }
    let places = ["/error/message", "/error", "/message"];
    places.iter().map(|place| str_at(event, place)).find(|text| !text.is_empty()).unwrap_or_default().to_owned()
}

/// The sum over all models counts helpers too; the plain one only the main conversation.
fn usage(event: &Value) -> Option<Usage> {
    let mut all = Usage::default();
    if let Some(models) = event.get("modelUsage").and_then(Value::as_object).filter(|models| !models.is_empty()) {
        for model in models.values() {
            all += Usage {
                input: count_at(model, "/inputTokens"),
                cached_input: count_at(model, "/cacheReadInputTokens"),
                cache_write: count_at(model, "/cacheCreationInputTokens"),
                output: count_at(model, "/outputTokens"),
                ..Usage::default()
            };
        }
        return Some(all);
    }
    let usage = event.get("usage").filter(|usage| usage.is_object())?;
    let cached = count_at(usage, "/cache_read_input_tokens");
    // Where there is a total, the input includes what was read from the cache.
    let within = usage.get("total_tokens").is_some();
    let input = count_at(usage, "/input_tokens");
    Some(Usage {
        input: if within { input.saturating_sub(cached) } else { input },
        cached_input: cached,
        cache_write: count_at(usage, "/cache_creation_input_tokens"),
        output: count_at(usage, "/output_tokens"),
        ..Usage::default()
    })
}
