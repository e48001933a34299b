//! Writes Gemini answers: every piece of a stream has the shape of a whole answer, and the last one has the usage.
//! Thoughts are counted beside the candidates, not within them.

use serde_json::{Value, json};

use super::{FakeModelAnswer, FakeModelContent, FakeStopReason, StreamFormat};
use crate::model_server::script::BilledTokens;

pub(super) fn complete_body(answer: &FakeModelAnswer) -> Value {
    let part = match &answer.content {
        FakeModelContent::Text(text) => json!({"text": text}),
        FakeModelContent::Tool { .. } => function_call(answer),
    };
    with_usage(answer, candidate_object(answer, &part, Some(stop_reason(answer.stop))))
}

pub(super) fn events(answer: &FakeModelAnswer, stream: StreamFormat) -> Vec<String> {
    let mut objects: Vec<Value> = match &answer.content {
        FakeModelContent::Text(text) => {
            FakeModelAnswer::pieces(text).map(|piece| candidate_object(answer, &json!({"text": piece}), None)).collect()
        }
        FakeModelContent::Tool { .. } => vec![candidate_object(answer, &function_call(answer), None)],
    };
    objects.push(with_usage(answer, candidate_object(answer, &json!({"text": ""}), Some(stop_reason(answer.stop)))));
    match stream {
        StreamFormat::No | StreamFormat::Events => {
            objects.iter().map(|object| format!("data: {object}\r\n\r\n")).collect()
        }
        StreamFormat::Array => {
            let mut pieces: Vec<String> = objects.iter().map(|object| format!(",\r\n{object}")).collect();
            if let Some(first) = pieces.first_mut() {
                first.replace_range(..3, "[");
            }
            pieces.push("]".to_owned());
            pieces
        }
    }
}

fn function_call(answer: &FakeModelAnswer) -> Value {
    match &answer.content {
        FakeModelContent::Text(_) => Value::Null,
        FakeModelContent::Tool { name, input } => json!({"functionCall": {"name": name, "args": input}}),
    }
}

fn candidate_object(answer: &FakeModelAnswer, part: &Value, stop: Option<&str>) -> Value {
    let mut candidate = json!({"content": {"role": "model", "parts": [part]}, "index": 0});
    if let (Some(candidate), Some(stop)) = (candidate.as_object_mut(), stop) {
        candidate.insert("finishReason".to_owned(), json!(stop));
    }
    json!({"candidates": [candidate], "modelVersion": answer.model, "responseId": answer.id("")})
}

fn with_usage(answer: &FakeModelAnswer, mut value: Value) -> Value {
    if let (Some(object), Some(tokens)) = (value.as_object_mut(), answer.usage) {
        object.insert("usageMetadata".to_owned(), usage(tokens));
    }
    value
}

fn usage(tokens: BilledTokens) -> Value {
    let BilledTokens { output, reasoning, .. } = tokens;
    json!({
        "promptTokenCount": tokens.prompt(),
        "cachedContentTokenCount": tokens.cached,
        "candidatesTokenCount": output.saturating_sub(reasoning),
        "thoughtsTokenCount": reasoning,
        "totalTokenCount": tokens.prompt() + output,
    })
}

fn stop_reason(stop: FakeStopReason) -> &'static str {
    match stop {
        FakeStopReason::End | FakeStopReason::Tool => "STOP",
        FakeStopReason::Length => "MAX_TOKENS",
    }
}
