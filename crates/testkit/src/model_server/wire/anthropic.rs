//! Writes Anthropic Messages. The prompt's tokens are reported separately: `input_tokens` excludes what the cache did.

use serde_json::{Value, json};

use super::{FakeModelAnswer, FakeModelContent, FakeStopReason, named_event};
use crate::model_server::script::BilledTokens;

pub(super) fn complete_body(answer: &FakeModelAnswer) -> Value {
    let block = match &answer.content {
        FakeModelContent::Text(text) => json!({"type": "text", "text": text}),
        FakeModelContent::Tool { name, input } => {
            json!({"type": "tool_use", "id": answer.id("toolu_"), "name": name, "input": input})
        }
    };
    message(answer, &json!([block]), &json!(stop_reason(answer.stop)), answer.usage.map(usage))
}

pub(super) fn events(answer: &FakeModelAnswer) -> Vec<String> {
    // The start event already reports one token; the end reports the true total.
    let begun = answer.usage.map(|tokens| usage(BilledTokens { output: 1, ..tokens }));
    let start = message(answer, &json!([]), &Value::Null, begun);
    let mut events = vec![
        named_event("message_start", &json!({"type": "message_start", "message": start})),
        named_event("ping", &json!({"type": "ping"})),
    ];
    let mut put = |kind: &str, field: &str, value: Value| {
        let mut event = json!({"type": kind, "index": 0});
        if let (Some(event), false) = (event.as_object_mut(), field.is_empty()) {
            event.insert(field.to_owned(), value);
        }
        events.push(named_event(kind, &event));
    };
    match &answer.content {
        FakeModelContent::Text(text) => {
            put("content_block_start", "content_block", json!({"type": "text", "text": ""}));
            for piece in FakeModelAnswer::pieces(text) {
                put("content_block_delta", "delta", json!({"type": "text_delta", "text": piece}));
            }
        }
        FakeModelContent::Tool { name, input } => {
            let block = json!({"type": "tool_use", "id": answer.id("toolu_"), "name": name, "input": {}});
            put("content_block_start", "content_block", block);
            for piece in FakeModelAnswer::pieces(&input.to_string()) {
                put("content_block_delta", "delta", json!({"type": "input_json_delta", "partial_json": piece}));
            }
        }
    }
    put("content_block_stop", "", Value::Null);
    let mut delta = json!({"type": "message_delta",
        "delta": {"stop_reason": stop_reason(answer.stop), "stop_sequence": null}});
    if let (Some(delta), Some(tokens)) = (delta.as_object_mut(), answer.usage) {
        delta.insert("usage".to_owned(), json!({"output_tokens": tokens.output}));
    }
    events.push(named_event("message_delta", &delta));
    events.push(named_event("message_stop", &json!({"type": "message_stop"})));
    events
}

fn message(answer: &FakeModelAnswer, content: &Value, stop: &Value, usage: Option<Value>) -> Value {
    let mut message = json!({
        "id": answer.id("msg_"),
        "type": "message",
        "role": "assistant",
        "model": answer.model,
        "content": content,
        "stop_reason": stop,
        "stop_sequence": null,
    });
    if let (Some(message), Some(usage)) = (message.as_object_mut(), usage) {
        message.insert("usage".to_owned(), usage);
    }
    message
}

fn usage(tokens: BilledTokens) -> Value {
    json!({
        "input_tokens": tokens.input,
        "cache_creation_input_tokens": tokens.cache_write + tokens.cache_write_long,
        "cache_read_input_tokens": tokens.cached,
        "output_tokens": tokens.output,
        "cache_creation": {
            "ephemeral_5m_input_tokens": tokens.cache_write,
            "ephemeral_1h_input_tokens": tokens.cache_write_long,
        },
        "server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 0},
        "service_tier": "standard",
    })
}

fn stop_reason(stop: FakeStopReason) -> &'static str {
    match stop {
        FakeStopReason::End => "end_turn",
        FakeStopReason::Tool => "tool_use",
        FakeStopReason::Length => "max_tokens",
    }
}
