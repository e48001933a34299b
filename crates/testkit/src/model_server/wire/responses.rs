//! Writes OpenAI Responses: every event is numbered, and the last one has the whole answer with its usage.

use serde_json::{Value, json};

use super::{FakeModelAnswer, FakeModelContent, FakeStopReason, named_event};
use crate::model_server::script::BilledTokens;

pub(super) fn complete_body(answer: &FakeModelAnswer) -> Value {
    let (status, details) = match answer.stop {
        FakeStopReason::End | FakeStopReason::Tool => ("completed", Value::Null),
        FakeStopReason::Length => ("incomplete", json!({"reason": "max_output_tokens"})),
    };
    let mut response = response_head(answer, status, &json!([output_item(answer)]));
    if let Some(object) = response.as_object_mut() {
        object.insert("incomplete_details".to_owned(), details);
        match answer.usage {
            Some(tokens) => object.insert("usage".to_owned(), usage(tokens)),
            None => object.remove("usage"),
        };
    }
    response
}

pub(super) fn events(answer: &FakeModelAnswer) -> Vec<String> {
    let mut events = Vec::new();
    let mut put = |kind: &str, fields: Value| {
        let mut event = json!({"type": kind, "sequence_number": events.len()});
        if let (Some(event), Value::Object(fields)) = (event.as_object_mut(), fields) {
            event.extend(fields);
        }
        events.push(named_event(kind, &event));
    };
    let begun = response_head(answer, "in_progress", &json!([]));
    put("response.created", json!({"response": begun}));
    put("response.in_progress", json!({"response": begun}));
    let done = output_item(answer);
    let id = done.get("id").cloned().unwrap_or_default();
    let mut added = done.clone();
    if let Some(added) = added.as_object_mut() {
        added.insert("status".to_owned(), json!("in_progress"));
    }
    match &answer.content {
        FakeModelContent::Text(text) => {
            let at =
                |field: &str, value: Value| json!({"item_id": id, "output_index": 0, "content_index": 0, field: value});
            let part = |text: &str| json!({"type": "output_text", "text": text, "annotations": []});
            added["content"] = json!([]);
            put("response.output_item.added", json!({"output_index": 0, "item": added}));
            put("response.content_part.added", at("part", part("")));
            for piece in FakeModelAnswer::pieces(text) {
                put("response.output_text.delta", at("delta", json!(piece)));
            }
            put("response.output_text.done", at("text", json!(text)));
            put("response.content_part.done", at("part", part(text)));
        }
        FakeModelContent::Tool { input, .. } => {
            let at = |field: &str, value: Value| json!({"item_id": id, "output_index": 0, field: value});
            let arguments = input.to_string();
            added["arguments"] = json!("");
            put("response.output_item.added", json!({"output_index": 0, "item": added}));
            for piece in FakeModelAnswer::pieces(&arguments) {
                put("response.function_call_arguments.delta", at("delta", json!(piece)));
            }
            put("response.function_call_arguments.done", at("arguments", json!(arguments)));
        }
    }
    put("response.output_item.done", json!({"output_index": 0, "item": done}));
    let last = if answer.stop == FakeStopReason::Length { "response.incomplete" } else { "response.completed" };
    put(last, json!({"response": complete_body(answer)}));
    events
}

fn response_head(answer: &FakeModelAnswer, status: &str, output: &Value) -> Value {
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

fn output_item(answer: &FakeModelAnswer) -> Value {
    match &answer.content {
        FakeModelContent::Text(text) => json!({
            "type": "message",
            "id": answer.id("msg_"),
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": text, "annotations": []}],
        }),
        FakeModelContent::Tool { name, input } => json!({
            "type": "function_call",
            "id": answer.id("fc_"),
            "call_id": answer.id("call_"),
            "name": name,
            "arguments": input.to_string(),
            "status": "completed",
        }),
    }
}

fn usage(tokens: BilledTokens) -> Value {
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
