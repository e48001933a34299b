//! Implements OpenAI's chat completions, which many servers claim to be compatible with.

use serde_json::{Map, Value, json};

use super::super::{ModelFinishReason, ModelRequest};
use super::{DecodedParts, SupportedFields, conversation_turns, merge_extra, string_at};

const RESERVED_FIELDS: [&str; 8] =
    ["model", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens", "n", "best_of"];

pub(super) fn body(model: &str, request: &ModelRequest, shape: SupportedFields) -> Result<Value, &'static str> {
    let system = Some(("system", request.system.as_str())).filter(|(_, text)| !text.is_empty());
    let all = system.into_iter().chain(conversation_turns(request, "assistant"));
    let messages: Vec<Value> = all.map(|(role, text)| json!({"role": role, "content": text})).collect();
    let mut body = Map::new();
    body.insert("model".into(), model.into());
    body.insert("messages".into(), messages.into());
    body.insert(shape.limit.name().into(), request.max_output_tokens.into());
    if let Some(temperature) = request.temperature.filter(|_| shape.temperature) {
        body.insert("temperature".into(), json!(temperature));
    }
    if request.json && shape.json {
        body.insert("response_format".into(), json!({"type": "json_object"}));
    }
    body.insert("stream".into(), false.into());
    merge_extra(&mut body, &request.extra, &RESERVED_FIELDS)?;
    Ok(Value::Object(body))
}

/// Parses a completion; `None` if it has no choice with a message.
pub(super) fn read_answer(value: &Value) -> Option<DecodedParts> {
    let choice = value.get("choices")?.get(0)?;
    let message = choice.get("message").filter(|message| message.is_object())?;
    let content = message.get("content").map(content_text).unwrap_or_default();
    let refusal = message.get("refusal").and_then(Value::as_str).filter(|refusal| !refusal.is_empty());
    let finish = match (choice.get("finish_reason").and_then(Value::as_str), refusal) {
        (_, Some(_)) if content.is_empty() => ModelFinishReason::Filtered,
        (Some("stop") | None, _) => ModelFinishReason::Stop,
        (Some("length"), _) => ModelFinishReason::Length,
        (Some("content_filter"), _) => ModelFinishReason::Filtered,
        (Some(other), _) => ModelFinishReason::Other(other.to_owned()),
    };
    let text = if content.is_empty() { refusal.unwrap_or_default().to_owned() } else { content };
    let thought = message.get("reasoning_content").and_then(Value::as_str).map_or(0, str::len);
    Some(DecodedParts { text, finish, model: string_at(value, "/model"), reasoning_bytes: thought })
}

/// Returns a message's content: a text, or the texts of a list of parts.
fn content_text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part.get("text")?.as_str()).collect(),
        _ => String::new(),
    }
}
