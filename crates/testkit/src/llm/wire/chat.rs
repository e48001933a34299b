//! OpenAI Chat Completions. `prompt_tokens` has everything of the prompt; what the cache did is told beside it.

use serde_json::{Value, json};

use super::{Answer, Content, Stop, data};
use crate::llm::script::Tokens;

pub(super) fn whole(answer: &Answer) -> Value {
    let message = match &answer.content {
        Content::Text(text) => json!({"role": "assistant", "content": text, "refusal": null}),
        Content::Tool { name, input } => {
            let function = json!({"name": name, "arguments": input.to_string()});
            let call = json!({"id": answer.id("call_"), "type": "function", "function": function});
            json!({"role": "assistant", "content": null, "tool_calls": [call]})
        }
    };
    let choice = json!({"index": 0, "message": message, "logprobs": null, "finish_reason": stop(answer.stop)});
    with_usage(answer, head(answer, "chat.completion", &json!([choice])))
}

pub(super) fn events(answer: &Answer) -> Vec<String> {
    let chunk = |delta: Value, stop: Option<&str>| {
        let choice = json!({"index": 0, "delta": delta, "logprobs": null, "finish_reason": stop});
        data(&head(answer, "chat.completion.chunk", &json!([choice])))
    };
    let mut events = vec![chunk(json!({"role": "assistant", "content": ""}), None)];
    match &answer.content {
        Content::Text(text) => {
            events.extend(Answer::pieces(text).map(|piece| chunk(json!({"content": piece}), None)));
        }
        Content::Tool { name, input } => {
            let function = json!({"name": name, "arguments": ""});
            let call = json!({"index": 0, "id": answer.id("call_"), "type": "function", "function": function});
            events.push(chunk(json!({"tool_calls": [call]}), None));
            for piece in Answer::pieces(&input.to_string()) {
                let call = json!({"index": 0, "function": {"arguments": piece}});
                events.push(chunk(json!({"tool_calls": [call]}), None));
            }
        }
    }
    events.push(chunk(json!({}), Some(stop(answer.stop))));
    if answer.usage.is_some() {
        events.push(data(&with_usage(answer, head(answer, "chat.completion.chunk", &json!([])))));
    }
    events.push("data: [DONE]\n\n".to_owned());
    events
}

fn head(answer: &Answer, object: &str, choices: &Value) -> Value {
    json!({
        "id": answer.id("chatcmpl-"),
        "object": object,
        "created": 1_794_700_000,
        "model": answer.model,
        "choices": choices,
    })
}

fn with_usage(answer: &Answer, mut value: Value) -> Value {
    if let (Some(object), Some(tokens)) = (value.as_object_mut(), answer.usage) {
        object.insert("usage".to_owned(), usage(tokens));
    }
    value
}

fn usage(tokens: Tokens) -> Value {
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

fn stop(stop: Stop) -> &'static str {
    match stop {
        Stop::End => "stop",
        Stop::Tool => "tool_calls",
        Stop::Length => "length",
    }
}
