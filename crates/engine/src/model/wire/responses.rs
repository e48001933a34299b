//! Implements OpenAI's responses: the newer format, and for some models the only one.

use serde_json::{Map, Value, json};

use super::super::{ModelFinishReason, ModelRequest};
use super::{DecodedParts, SupportedFields, conversation_turns, merge_extra, string_at};

const RESERVED_FIELDS: [&str; 10] = [
    "model",
    "input",
    "instructions",
    "stream",
    "stream_options",
    "max_output_tokens",
    "background",
    "conversation",
    "previous_response_id",
    "service_tier",
];

pub(super) fn body(model: &str, request: &ModelRequest, shape: SupportedFields) -> Result<Value, &'static str> {
    let input: Vec<Value> =
        conversation_turns(request, "assistant").map(|(role, text)| json!({"role": role, "content": text})).collect();
    let mut body = Map::new();
    body.insert("model".into(), model.into());
    if !request.system.is_empty() {
        body.insert("instructions".into(), request.system.as_str().into());
    }
    body.insert("input".into(), input.into());
    body.insert("max_output_tokens".into(), request.max_output_tokens.into());
    if let Some(temperature) = request.temperature.filter(|_| shape.temperature) {
        body.insert("temperature".into(), json!(temperature));
    }
    if request.json && shape.json {
        body.insert("text".into(), json!({"format": {"type": "json_object"}}));
    }
    // Every iteration is its own session: nothing needs to be stored at the provider.
    body.insert("store".into(), false.into());
    body.insert("stream".into(), false.into());
    merge_extra(&mut body, &request.extra, &RESERVED_FIELDS)?;
    Ok(Value::Object(body))
}

/// Parses a response; `None` if it is not one, or failed and holds an error instead.
pub(super) fn read_answer(value: &Value) -> Option<DecodedParts> {
    let status = value.get("status").and_then(Value::as_str);
    if status == Some("failed") {
        return None;
    }
    let parts = |field: &str| -> String {
        let items = value.get("output").and_then(Value::as_array).into_iter().flatten();
        let parts = items.filter_map(|item| item.get("content")?.as_array()).flatten();
        parts.filter_map(|part| part.get(field)?.as_str()).collect()
    };
    value.get("output")?.as_array()?;
    let (content, refusal) = (parts("text"), parts("refusal"));
    let refused = content.is_empty() && !refusal.is_empty();
    let finish = match (status, string_at(value, "/incomplete_details/reason").as_deref()) {
        _ if refused => ModelFinishReason::Filtered,
        (Some("completed") | None, _) => ModelFinishReason::Stop,
        (Some("incomplete"), Some("max_output_tokens")) => ModelFinishReason::Length,
        (Some("incomplete"), Some("content_filter")) => ModelFinishReason::Filtered,
        (Some(_), Some(reason)) => ModelFinishReason::Other(reason.to_owned()),
        (Some(other), None) => ModelFinishReason::Other(other.to_owned()),
    };
    let text = if refused { refusal } else { content };
    // Reasoning comes as a summary at most, which does not state its length.
    Some(DecodedParts { text, finish, model: string_at(value, "/model"), reasoning_bytes: 0 })
}
