//! Implements Anthropic's messages format.
//!
//! It has no mode that promises a JSON object, so a request's `json` changes nothing here. The prompt requests one,
//! and an answer that is none is followed up like any other provider's.

use serde_json::{Map, Value, json};

use super::super::{ModelFinishReason, ModelRequest};
use super::{DecodedParts, SupportedFields, conversation_turns, merge_extra, string_at};

const RESERVED_FIELDS: [&str; 6] = ["model", "messages", "system", "stream", "max_tokens", "service_tier"];

pub(super) fn body(model: &str, request: &ModelRequest, shape: SupportedFields) -> Result<Value, &'static str> {
    let messages: Vec<Value> =
        conversation_turns(request, "assistant").map(|(role, text)| json!({"role": role, "content": text})).collect();
    let mut body = Map::new();
    body.insert("model".into(), model.into());
    body.insert("max_tokens".into(), request.max_output_tokens.into());
    if !request.system.is_empty() {
        body.insert("system".into(), request.system.as_str().into());
    }
    body.insert("messages".into(), messages.into());
    if let Some(temperature) = request.temperature.filter(|_| shape.temperature) {
        body.insert("temperature".into(), json!(temperature));
    }
    merge_extra(&mut body, &request.extra, &RESERVED_FIELDS)?;
    Ok(Value::Object(body))
}

/// Parses a message; `None` if it is not one.
pub(super) fn read_answer(value: &Value) -> Option<DecodedParts> {
    let blocks = value.get("content")?.as_array()?;
    let text: String = blocks
        .iter()
        .filter(|block| block.get("type").is_none_or(|kind| kind == "text"))
        .filter_map(|block| block.get("text")?.as_str())
        .collect();
    let thought = blocks.iter().filter_map(|block| block.get("thinking")?.as_str()).map(str::len).sum();
    let finish = match value.get("stop_reason").and_then(Value::as_str) {
        Some("end_turn" | "stop_sequence") | None => ModelFinishReason::Stop,
        // Cut by one limit or the other.
        Some("max_tokens" | "model_context_window_exceeded") => ModelFinishReason::Length,
        Some("refusal") => ModelFinishReason::Filtered,
        Some(other) => ModelFinishReason::Other(other.to_owned()),
    };
    Some(DecodedParts { text, finish, model: string_at(value, "/model"), reasoning_bytes: thought })
}
