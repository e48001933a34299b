//! Implements Google's `generateContent`: the model's name is in the URL, not in the body.

use serde_json::{Map, Value, json};

use super::super::{ModelFinishReason, ModelRequest};
use super::{DecodedParts, SupportedFields, conversation_turns, merge_extra, string_at};

const CONFIG: &str = "generationConfig";
const RESERVED_FIELDS: [&str; 4] = ["contents", "systemInstruction", "maxOutputTokens", "candidateCount"];

pub(super) fn body(request: &ModelRequest, shape: SupportedFields) -> Result<Value, &'static str> {
    let contents: Vec<Value> = conversation_turns(request, "model")
        .map(|(role, text)| json!({"role": role, "parts": [{"text": text}]}))
        .collect();
    let mut config = Map::new();
    config.insert("maxOutputTokens".into(), request.max_output_tokens.into());
    if let Some(temperature) = request.temperature.filter(|_| shape.temperature) {
        config.insert("temperature".into(), json!(temperature));
    }
    if request.json && shape.json {
        config.insert("responseMimeType".into(), "application/json".into());
    }
    let mut body = Map::new();
    body.insert("contents".into(), contents.into());
    if !request.system.is_empty() {
        body.insert("systemInstruction".into(), json!({"parts": [{"text": request.system}]}));
    }
    body.insert(CONFIG.into(), config.into());
    // The output cap is in this object; a value that is not an object would remove it.
    if request.extra.get(CONFIG).is_some_and(|config| !config.is_object()) {
        return Err(CONFIG);
    }
    merge_extra(&mut body, &request.extra, &RESERVED_FIELDS)?;
    Ok(Value::Object(body))
}

/// Parses an answer; `None` if it is not one. A blocked answer has no candidate but is still an answer.
pub(super) fn read_answer(value: &Value) -> Option<DecodedParts> {
    let model = string_at(value, "/modelVersion");
    let Some(candidate) = value.pointer("/candidates/0").filter(|candidate| candidate.is_object()) else {
        string_at(value, "/promptFeedback/blockReason")?;
        return Some(DecodedParts {
            text: String::new(),
            finish: ModelFinishReason::Filtered,
            model,
            reasoning_bytes: 0,
        });
    };
    let parts = || candidate.pointer("/content/parts").and_then(Value::as_array).into_iter().flatten();
    let is_thought = |part: &&Value| part.get("thought") == Some(&Value::Bool(true));
    let text: String = parts().filter(|part| !is_thought(part)).filter_map(|part| part.get("text")?.as_str()).collect();
    let thought = parts().filter(is_thought).filter_map(|part| part.get("text")?.as_str()).map(str::len).sum();
    let finish = match candidate.get("finishReason").and_then(Value::as_str) {
        Some("STOP") | None => ModelFinishReason::Stop,
        Some("MAX_TOKENS") => ModelFinishReason::Length,
        Some("SAFETY" | "RECITATION" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII") => ModelFinishReason::Filtered,
        Some(other) => ModelFinishReason::Other(other.to_owned()),
    };
    Some(DecodedParts { text, finish, model, reasoning_bytes: thought })
}
