//! Gemini: every piece of a stream has the shape of a whole answer, and the last one its usage. Thoughts are counted
//! beside the candidates, not within them.

use serde_json::{Value, json};

use super::{Answer, Content, Stop, Stream};
use crate::llm::script::Tokens;

pub(super) fn whole(answer: &Answer) -> Value {
    let part = match &answer.content {
        Content::Text(text) => json!({"text": text}),
        Content::Tool { .. } => call(answer),
    };
    with_usage(answer, object(answer, &part, Some(stop(answer.stop))))
}

pub(super) fn events(answer: &Answer, stream: Stream) -> Vec<String> {
    let mut objects: Vec<Value> = match &answer.content {
        Content::Text(text) => {
            Answer::pieces(text).map(|piece| object(answer, &json!({"text": piece}), None)).collect()
        }
        Content::Tool { .. } => vec![object(answer, &call(answer), None)],
    };
    objects.push(with_usage(answer, object(answer, &json!({"text": ""}), Some(stop(answer.stop)))));
    match stream {
        Stream::No | Stream::Events => objects.iter().map(|object| format!("data: {object}\r\n\r\n")).collect(),
        Stream::Array => {
            let mut pieces: Vec<String> = objects.iter().map(|object| format!(",\r\n{object}")).collect();
            if let Some(first) = pieces.first_mut() {
                first.replace_range(..3, "[");
            }
            pieces.push("]".to_owned());
            pieces
        }
    }
}

fn call(answer: &Answer) -> Value {
    match &answer.content {
        Content::Text(_) => Value::Null,
        Content::Tool { name, input } => json!({"functionCall": {"name": name, "args": input}}),
    }
}

fn object(answer: &Answer, part: &Value, stop: Option<&str>) -> Value {
    let mut candidate = json!({"content": {"role": "model", "parts": [part]}, "index": 0});
    if let (Some(candidate), Some(stop)) = (candidate.as_object_mut(), stop) {
        candidate.insert("finishReason".to_owned(), json!(stop));
    }
    json!({"candidates": [candidate], "modelVersion": answer.model, "responseId": answer.id("")})
}

fn with_usage(answer: &Answer, mut value: Value) -> Value {
    if let (Some(object), Some(tokens)) = (value.as_object_mut(), answer.usage) {
        object.insert("usageMetadata".to_owned(), usage(tokens));
    }
    value
}

fn usage(tokens: Tokens) -> Value {
    let Tokens { output, reasoning, .. } = tokens;
    json!({
        "promptTokenCount": tokens.prompt(),
        "cachedContentTokenCount": tokens.cached,
        "candidatesTokenCount": output.saturating_sub(reasoning),
        "thoughtsTokenCount": reasoning,
        "totalTokenCount": tokens.prompt() + output,
    })
}

fn stop(stop: Stop) -> &'static str {
    match stop {
        Stop::End | Stop::Tool => "STOP",
        Stop::Length => "MAX_TOKENS",
    }
}
