//! OpenAI's chat completions, and the many servers that call themselves compatible.

use serde_json::{Map, Value, json};

use super::super::{Finish, Request};
use super::{Shape, Words, add, turns, word};

const OURS: [&str; 8] =
    ["model", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens", "n", "best_of"];

pub(super) fn body(model: &str, request: &Request, shape: Shape) -> Result<Value, &'static str> {
    let system = Some(("system", request.system.as_str())).filter(|(_, text)| !text.is_empty());
    let all = system.into_iter().chain(turns(request, "assistant"));
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
    add(&mut body, &request.extra, &OURS)?;
    Ok(Value::Object(body))
}

/// Reads a completion; `None` when it has no choice with a message.
pub(super) fn words(value: &Value) -> Option<Words> {
    let choice = value.get("choices")?.get(0)?;
    let message = choice.get("message").filter(|message| message.is_object())?;
    let said = message.get("content").map(content).unwrap_or_default();
    let refusal = message.get("refusal").and_then(Value::as_str).filter(|refusal| !refusal.is_empty());
    let finish = match (choice.get("finish_reason").and_then(Value::as_str), refusal) {
        (_, Some(_)) if said.is_empty() => Finish::Filtered,
        (Some("stop") | None, _) => Finish::Stop,
        (Some("length"), _) => Finish::Length,
        (Some("content_filter"), _) => Finish::Filtered,
        (Some(other), _) => Finish::Other(other.to_owned()),
    };
    let text = if said.is_empty() { refusal.unwrap_or_default().to_owned() } else { said };
    let thought = message.get("reasoning_content").and_then(Value::as_str).map_or(0, str::len);
    Some(Words { text, finish, model: word(value, "/model"), thought })
}

/// Reads a message's content: a text, or a list of parts of which the texts count.
fn content(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part.get("text")?.as_str()).collect(),
        _ => String::new(),
    }
}
