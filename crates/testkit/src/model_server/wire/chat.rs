//! Writes OpenAI Chat Completions. `prompt_tokens` covers the whole prompt; what the cache did is reported beside it.

use serde_json::{Value, json};

use super::{FakeModelAnswer, FakeModelContent, FakeStopReason, data_event};
use crate::model_server::script::BilledTokens;

pub(super) fn complete_body(answer: &FakeModelAnswer) -> Value {
    let message = match &answer.content {
        FakeModelContent::Text(text) => json!({"role": "assistant", "content": text, "refusal": null}),
        FakeModelContent::Tool { name, input } => {
            let function = json!({"name": name, "arguments": input.to_string()});
            let call = json!({"id": answer.id("call_"), "type": "function", "function": function});
            json!({"role": "assistant", "content": null, "tool_calls": [call]})
        }
    };
    let choice = json!({"index": 0, "message": message, "logprobs": null, "finish_reason": stop_reason(answer.stop)});
    with_usage(answer, response_head(answer, "chat.completion", &json!([choice])))
}

pub(super) fn events(answer: &FakeModelAnswer) -> Vec<String> {
    let chunk = |delta: Value, stop: Option<&str>| {
        let choice = json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": stop});
        data_event(&response_head(answer, "chat.completion.chunk", &json!([choice])))
    };
    let mut events = vec![chunk(json!({"role": "assistant", "content": ""}), None)];
    match &answer.content {
        FakeModelContent::Text(text) => {
            events.extend(FakeModelAnswer::pieces(text).map(|piece| chunk(json!({"content": piece}), None)));
        }
        FakeModelContent::Tool { name, input } => {
            let function = json!({"name": name, "arguments": ""});
            let call = json!({"index": 0, "id": answer.id("call_"), "type": "function", "function": function});
            events.push(chunk(json!({"tool_calls": [call]}), None));
            for piece in FakeModelAnswer::pieces(&input.to_string()) {
                let call = json!({"index": 0, "function": {"arguments": piece}});
                events.push(chunk(json!({"tool_calls": [call]}), None));
            }
        }
    }
    events.push(chunk(json!({}), Some(stop_reason(answer.stop))));
    if answer.usage.is_some() {
        events.push(data_event(&with_usage(answer, response_head(answer, "chat.completion.chunk", &json!([])))));
    }
    events.push("data: [DONE]\n\n".to_owned());
    events
}

fn response_head(answer: &FakeModelAnswer, object: &str, choices: &Value) -> Value {
    json!({
        "id": answer.id("chatcmpl-"),
        "object": object,
        "created": 1_794_700_000,
        "model": answer.model,
        "choices": choices,
    })
}

fn with_usage(answer: &FakeModelAnswer, mut value: Value) -> Value {
    if let (Some(object), Some(tokens)) = (value.as_object_mut(), answer.usage) {
        object.insert("usage".to_owned(), usage(tokens));
    }
    value
}

fn usage(tokens: BilledTokens) -> Value {
    let (prompt, output) = (tokens.prompt(), tokens.output);
    json!({
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
        "prompt_tokens_details": {
            "cached_tokens": tokens.cached,
            "cache_write_tokens": tokens.cache_write + tokens.cache_write_long,
        },
        "completion_tokens_details": {"reasoning_tokens": tokens.reasoning},
    })
}

fn stop_reason(stop: FakeStopReason) -> &'static str {
    match stop {
        FakeStopReason::End => "stop",
        FakeStopReason::Tool => "tool_calls",
        FakeStopReason::Length => "length",
    }
}
