//! OpenAI Responses: every event is numbered, and the last one has the whole answer with its usage.

use serde_json::{Value, json};

use super::{Answer, Content, Stop, named};
use crate::llm::script::Tokens;

pub(super) fn whole(answer: &Answer) -> Value {
    let (status, details) = match answer.stop {
        Stop::End | Stop::Tool => ("completed", Value::Null),
        Stop::Length => ("incomplete", json!({"reason": "max_output_tokens"})),
    };
    let mut response = head(answer, status, &json!([item(answer)]));
    if let Some(object) = response.as_object_mut() {
        object.insert("incomplete_details".to_owned(), details);
        match answer.usage {
            Some(tokens) => object.insert("usage".to_owned(), usage(tokens)),
            None => object.remove("usage"),
        };
    }
    response
}

pub(super) fn events(answer: &Answer) -> Vec<String> {
    let mut events = Vec::new();
    let mut put = |kind: &str, fields: Value| {
        let mut event = json!({"type": kind, "sequence_number": events.len()});
        if let (Some(event), Value::Object(fields)) = (event.as_object_mut(), fields) {
            event.extend(fields);
        }
        events.push(named(kind, &event));
    };
    let begun = head(answer, "in_progress", &json!([]));
    put("response.created", json!({"response": begun}));
    put("response.in_progress", json!({"response": begun}));
    let done = item(answer);
    let id = done.get("id").cloned().unwrap_or_default();
    let mut added = done.clone();
    if let Some(added) = added.as_object_mut() {
        added.insert("status".to_owned(), json!("in_progress"));
    }
    match &answer.content {
        Content::Text(text) => {
            let at =
                |field: &str, value: Value| json!({"item_id": id, "output_index": 0, "content_index": 0, field: value});
            let part = |text: &str| json!({"type": "output_text", "text": text, "annotations": []});
            added["content"] = json!([]);
            put("response.output_item.added", json!({"output_index": 0, "item": added}));
            put("response.content_part.added", at("part", part("")));
            for piece in Answer::pieces(text) {
                put("response.output_text.delta", at("delta", json!(piece)));
            }
            put("response.output_text.done", at("text", json!(text)));
            put("response.content_part.done", at("part", part(text)));
        }
        Content::Tool { input, .. } => {
            let at = |field: &str, value: Value| json!({"item_id": id, "output_index": 0, field: value});
            let arguments = input.to_string();
            added["arguments"] = json!("");
            put("response.output_item.added", json!({"output_index": 0, "item": added}));
            for piece in Answer::pieces(&arguments) {
                put("response.function_call_arguments.delta", at("delta", json!(piece)));
            }
            put("response.function_call_arguments.done", at("arguments", json!(arguments)));
        }
    }
    put("response.output_item.done", json!({"output_index": 0, "item": done}));
    let last = if answer.stop == Stop::Length { "response.incomplete" } else { "response.completed" };
    put(last, json!({"response": whole(answer)}));
    events
}

fn head(answer: &Answer, status: &str, output: &Value) -> Value {
    json!({
        "id": answer.id("resp_"),
        "object": "response",
        "created_at": 1_794_700_000,
        "status": status,
        "model": answer.model,
        "output": output,
        "error": null,
        "incomplete_details": null,
        "usage": null,
    })
}

fn item(answer: &Answer) -> Value {
    match &answer.content {
        Content::Text(text) => json!({
            "type": "message",
            "id": answer.id("msg_"),
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": text, "annotations": []}],
        }),
        Content::Tool { name, input } => json!({
            "type": "function_call",
            "id": answer.id("fc_"),
            "call_id": answer.id("call_"),
            "name": name,
            "arguments": input.to_string(),
            "status": "completed",
        }),
    }
}

fn usage(tokens: Tokens) -> Value {
    let (prompt, output) = (tokens.prompt(), tokens.output);
    json!({
        "input_tokens": prompt,
        "input_tokens_details": {
            "cached_tokens": tokens.cached,
            "cache_write_tokens": tokens.cache_write + tokens.cache_write_long,
        },
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": tokens.reasoning},
        "total_tokens": prompt + output,
    })
}
