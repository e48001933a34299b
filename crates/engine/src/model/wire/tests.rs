//! Tests the wire formats: request bodies, decoded answers, and the reaction to rejected fields.

use std::time::Duration;

use proptest::prelude::*;
use serde_json::json;

use super::super::{ConversationTurn, LostCallPolicy, estimate_usage};
use super::*;

const ALL: [ModelWireFormat; 4] =
    [ModelWireFormat::Chat, ModelWireFormat::Responses, ModelWireFormat::Messages, ModelWireFormat::Gemini];

fn request() -> ModelRequest {
    ModelRequest {
        system: "rules".into(),
        user: "do".into(),
        history: Vec::new(),
        max_output_tokens: 64,
        temperature: Some(0.2),
        json: true,
        on_lost: LostCallPolicy::Retry,
        timeout: Duration::from_secs(1),
        extra: Map::new(),
    }
}

/// A follow-up without optional fields, with a field of the profile's own.
fn request_with_history() -> ModelRequest {
    ModelRequest {
        system: String::new(),
        history: vec![
            ConversationTurn { role: ConversationRole::Assistant, text: "{".into() },
            ConversationTurn { role: ConversationRole::User, text: "not JSON".into() },
        ],
        temperature: None,
        json: false,
        extra: json!({"thinking": {"type": "disabled"}}).as_object().cloned().unwrap(),
        ..request()
    }
}

#[test]
fn bodies() {
    #[track_caller]
    fn check(format: ModelWireFormat, model: &str, request: &ModelRequest, want: Value) {
        assert_eq!(format.body(model, request, SupportedFields::of(model)), Ok(want));
    }
    let messages = json!([{"role": "system", "content": "rules"}, {"role": "user", "content": "do"}]);
    let asked = json!([{"role": "user", "content": "do"}]);
    let third = json!([{"role": "user", "content": "do"}, {"role": "assistant", "content": "{"},
        {"role": "user", "content": "not JSON"}]);
    check(
        ModelWireFormat::Chat,
        "glm-4.7",
        &request(),
        json!({"model": "glm-4.7", "messages": messages, "max_tokens": 64, "temperature": 0.2,
            "response_format": {"type": "json_object"}, "stream": false}),
    );
    check(
        ModelWireFormat::Chat,
        "gpt-5",
        &request(),
        json!({"model": "gpt-5", "messages": messages, "max_completion_tokens": 64,
            "response_format": {"type": "json_object"}, "stream": false}),
    );
    check(
        ModelWireFormat::Chat,
        "glm-4.7",
        &request_with_history(),
        json!({"model": "glm-4.7", "messages": third, "max_tokens": 64, "stream": false,
            "thinking": {"type": "disabled"}}),
    );
    check(
        ModelWireFormat::Responses,
        "gpt-5-codex",
        &request(),
        json!({"model": "gpt-5-codex", "instructions": "rules", "input": asked, "max_output_tokens": 64,
            "text": {"format": {"type": "json_object"}}, "store": false, "stream": false}),
    );
    check(
        ModelWireFormat::Responses,
        "m",
        &request_with_history(),
        json!({"model": "m", "input": third, "max_output_tokens": 64, "store": false, "stream": false,
            "thinking": {"type": "disabled"}}),
    );
    check(
        ModelWireFormat::Messages,
        "claude-opus-4-5",
        &request(),
        json!({"model": "claude-opus-4-5", "max_tokens": 64, "system": "rules", "messages": asked, "temperature": 0.2}),
    );
    check(
        ModelWireFormat::Messages,
        "m",
        &request_with_history(),
        json!({"model": "m", "max_tokens": 64, "messages": third, "thinking": {"type": "disabled"}}),
    );
    let turn = |role: &str, text: &str| json!({"role": role, "parts": [{"text": text}]});
    check(
        ModelWireFormat::Gemini,
        "gemini-2.5-pro",
        &request(),
        json!({"contents": [turn("user", "do")], "systemInstruction": {"parts": [{"text": "rules"}]},
            "generationConfig": {"maxOutputTokens": 64, "temperature": 0.2, "responseMimeType": "application/json"}}),
    );
    check(
        ModelWireFormat::Gemini,
        "m",
        &request_with_history(),
        json!({"contents": [turn("user", "do"), turn("model", "{"), turn("user", "not JSON")],
            "generationConfig": {"maxOutputTokens": 64}, "thinking": {"type": "disabled"}}),
    );
}

#[test]
fn extra_fields_of_the_profile() {
    #[track_caller]
    fn check(format: ModelWireFormat, extra: &Value, want: Result<&str, &'static str>) {
        let asking = ModelRequest { extra: extra.as_object().cloned().unwrap(), ..request() };
        let got = format.body("m", &asking, SupportedFields::of("m"));
        let pointed = got.map(|body| want.ok().and_then(|at| body.pointer(at).cloned()));
        assert_eq!(pointed, want.map(|_| Some(json!(9))), "{extra}");
    }
    let nine = |name: &str| json!({ name: 9 });
    for (format, fields) in [
        (ModelWireFormat::Chat, &["model", "max_tokens", "max_completion_tokens", "n", "stream"][..]),
        (ModelWireFormat::Responses, &["model", "input", "instructions", "max_output_tokens", "background"]),
        (ModelWireFormat::Messages, &["model", "messages", "system", "max_tokens", "stream"]),
        (ModelWireFormat::Gemini, &["contents", "systemInstruction", "generationConfig"]),
    ] {
        for field in fields {
            check(format, &nine(field), Err(field));
        }
    }
    check(ModelWireFormat::Gemini, &json!({"generationConfig": {"maxOutputTokens": 9}}), Err("maxOutputTokens"));
    check(ModelWireFormat::Gemini, &json!({"generationConfig": {"candidateCount": 9}}), Err("candidateCount"));
    check(ModelWireFormat::Gemini, &json!({"generationConfig": {"topK": 9}}), Ok("/generationConfig/topK"));
    check(ModelWireFormat::Responses, &json!({"text": {"verbosity": 9}}), Ok("/text/verbosity"));
    check(ModelWireFormat::Chat, &nine("seed"), Ok("/seed"));
    check(ModelWireFormat::Messages, &json!({"thinking": {"budget_tokens": 9}}), Ok("/thinking/budget_tokens"));
}

#[test]
fn rejected_fields() {
    #[track_caller]
    fn check(format: ModelWireFormat, status: u16, error: &Value, want: Option<SupportedFields>) {
        let shape = SupportedFields::of("m");
        let sent = format.body("m", &request(), shape).unwrap();
        let error_body = ProviderErrorBody::parse(&json!({ "error": error }).to_string());
        assert_eq!(shape.after_rejection(format, status, &error_body, &sent), want, "{format:?} {error}");
    }
    let whole = SupportedFields::of("m");
    let (plain, cold) =
        (Some(SupportedFields { json: false, ..whole }), Some(SupportedFields { temperature: false, ..whole }));
    let capped = Some(SupportedFields { limit: OutputLimitField::MaxCompletionTokens, ..whole });
    let (chat, responses, messages, gemini) = (ALL[0], ALL[1], ALL[2], ALL[3]);
    let message = |text: &str| json!({ "message": text });
    let of = |text: &str, param: &str| json!({"message": text, "param": param});
    check(chat, 400, &of("no", "response_format"), plain);
    check(chat, 422, &message("Extra inputs: response_format"), plain);
    check(
        chat,
        400,
        &of("Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.", "max_tokens"),
        capped,
    );
    check(chat, 400, &of("Unsupported value: 'temperature'", "temperature"), cold);
    check(chat, 400, &message("litellm.BadRequestError: `temperature` is deprecated for this model."), cold);
    check(chat, 400, &of("temperature must be below 2", "temperature"), None);
    check(chat, 400, &of("max_tokens is too large", "max_tokens"), None);
    check(chat, 500, &message("response_format"), None);
    check(chat, 400, &message("thing"), None);
    check(responses, 400, &of("Invalid parameter", "text.format"), plain);
    check(
        responses,
        400,
        &of("Unsupported parameter: 'temperature' is not supported with this model.", "temperature"),
        cold,
    );
    check(responses, 400, &message("use 'max_completion_tokens', not max_tokens"), None);
    check(messages, 400, &message("`temperature` is deprecated for this model."), cold);
    check(messages, 400, &message("`temperature` may only be set to 1 when thinking is enabled"), cold);
    check(messages, 400, &message("response_format"), None);
    check(gemini, 400, &message("Unknown name \"responseMimeType\" at 'generation_config': Cannot find field."), plain);
    check(gemini, 400, &message("JSON mode is not enabled for models/gemma-3"), plain);
    check(gemini, 400, &message("Unsupported: temperature"), cold);
    // A field that was not sent cannot be removed.
    let none = SupportedFields { json: false, ..whole };
    let sent = chat.body("m", &request(), none).unwrap();
    let error_body = ProviderErrorBody::parse(r#"{"error":{"message":"response_format"}}"#);
    assert_eq!(none.after_rejection(chat, 400, &error_body, &sent), None);
}

/// Decodes an answer and checks its text, its finish reason and its usage as input, cached, written, output and
/// reasoning.
#[track_caller]
fn check_answer(format: ModelWireFormat, body: &Value, text: &str, finish: ModelFinishReason, tokens: [u64; 5]) {
    let [input, cached_input, cache_write, output, reasoning] = tokens;
    let usage = TokenUsage { input, cached_input, cache_write, output, reasoning, ..TokenUsage::default() };
    let want = DecodedAnswer { text: text.into(), usage, usage_reported: true, model: Some("m".into()), finish };
    assert_eq!(format.decode_answer(&body.to_string(), &request()), Ok(want), "{body}");
}

#[test]
fn chat_answers() {
    #[track_caller]
    fn check(message: &Value, finish: &Value, want_text: &str, want: ModelFinishReason) {
        let body = json!({"model": "m", "choices": [{"message": message, "finish_reason": finish}],
            "usage": {"prompt_tokens": 5, "completion_tokens": 2}});
        check_answer(ModelWireFormat::Chat, &body, want_text, want, [5, 0, 0, 2, 0]);
    }
    check(&json!({"content": "hi"}), &json!("stop"), "hi", ModelFinishReason::Stop);
    check(&json!({"content": "hi"}), &json!(null), "hi", ModelFinishReason::Stop);
    check(&json!({"content": "h"}), &json!("length"), "h", ModelFinishReason::Length);
    check(&json!({"content": ""}), &json!("content_filter"), "", ModelFinishReason::Filtered);
    check(&json!({"content": null}), &json!("stop"), "", ModelFinishReason::Stop);
    check(&json!({"content": null, "refusal": "No."}), &json!("stop"), "No.", ModelFinishReason::Filtered);
    check(&json!({"content": "hi", "refusal": ""}), &json!("stop"), "hi", ModelFinishReason::Stop);
    check(
        &json!({"content": null, "tool_calls": []}),
        &json!("tool_calls"),
        "",
        ModelFinishReason::Other("tool_calls".into()),
    );
    let parts = json!({"content": [{"type": "text", "text": "a"}, {"type": "image"}, {"type": "text", "text": "b"}]});
    check(&parts, &json!("stop"), "ab", ModelFinishReason::Stop);
    check(&json!({"content": 7}), &json!("stop"), "", ModelFinishReason::Stop);
}

#[test]
fn messages_answers() {
    #[track_caller]
    fn check(content: &Value, stop: &Value, want_text: &str, want: ModelFinishReason) {
        let body = json!({"type": "message", "role": "assistant", "model": "m", "content": content,
            "stop_reason": stop, "usage": {"input_tokens": 11, "cache_creation_input_tokens": 100,
            "cache_read_input_tokens": 200, "output_tokens": 7}});
        check_answer(ModelWireFormat::Messages, &body, want_text, want, [11, 200, 100, 7, 0]);
    }
    let text = json!([{"type": "text", "text": "hi"}]);
    check(&text, &json!("end_turn"), "hi", ModelFinishReason::Stop);
    check(&text, &json!("stop_sequence"), "hi", ModelFinishReason::Stop);
    check(&text, &json!("max_tokens"), "hi", ModelFinishReason::Length);
    check(&text, &json!("model_context_window_exceeded"), "hi", ModelFinishReason::Length);
    check(&json!([]), &json!("refusal"), "", ModelFinishReason::Filtered);
    check(&json!([]), &json!("end_turn"), "", ModelFinishReason::Stop);
    check(&text, &json!("pause_turn"), "hi", ModelFinishReason::Other("pause_turn".into()));
    let thinking = json!([{"type": "thinking", "thinking": "hm", "signature": "x"}, {"type": "text", "text": "a"},
        {"type": "tool_use", "id": "t", "name": "n", "input": {}}, {"type": "text", "text": "b"}]);
    check(&thinking, &json!(null), "ab", ModelFinishReason::Stop);
}

#[test]
fn responses_answers() {
    #[track_caller]
    fn check(status: &str, reason: &Value, output: &Value, want_text: &str, want: ModelFinishReason) {
        let body = json!({"object": "response", "model": "m", "status": status, "error": null, "output": output,
            "incomplete_details": reason, "usage": {"input_tokens": 50, "output_tokens": 9, "total_tokens": 59,
            "input_tokens_details": {"cached_tokens": 20, "cache_write_tokens": 4},
            "output_tokens_details": {"reasoning_tokens": 3}}});
        check_answer(ModelWireFormat::Responses, &body, want_text, want, [26, 20, 4, 9, 3]);
    }
    let message = |part: Value| json!([{"type": "reasoning", "summary": []}, {"type": "message", "content": [part]}]);
    let hi = message(json!({"type": "output_text", "text": "hi", "annotations": []}));
    check("completed", &json!(null), &hi, "hi", ModelFinishReason::Stop);
    check("incomplete", &json!({"reason": "max_output_tokens"}), &hi, "hi", ModelFinishReason::Length);
    check("incomplete", &json!({"reason": "max_output_tokens"}), &json!([]), "", ModelFinishReason::Length);
    check("incomplete", &json!({"reason": "content_filter"}), &hi, "hi", ModelFinishReason::Filtered);
    check("incomplete", &json!({"reason": "odd"}), &hi, "hi", ModelFinishReason::Other("odd".into()));
    check("cancelled", &json!(null), &json!([]), "", ModelFinishReason::Other("cancelled".into()));
    check(
        "completed",
        &json!(null),
        &message(json!({"type": "refusal", "refusal": "No."})),
        "No.",
        ModelFinishReason::Filtered,
    );
}

#[test]
fn gemini_answers() {
    #[track_caller]
    fn check(content: &Value, finish: &Value, want_text: &str, want: ModelFinishReason) {
        let body = json!({"candidates": [{"content": content, "finishReason": finish, "index": 0}],
            "usageMetadata": {"promptTokenCount": 50, "candidatesTokenCount": 6, "totalTokenCount": 59,
            "cachedContentTokenCount": 20, "thoughtsTokenCount": 3}, "modelVersion": "m"});
        check_answer(ModelWireFormat::Gemini, &body, want_text, want, [30, 20, 0, 9, 3]);
    }
    let hi = json!({"role": "model", "parts": [{"text": "h"}, {"text": "hm", "thought": true}, {"text": "i"}]});
    check(&hi, &json!("STOP"), "hi", ModelFinishReason::Stop);
    check(&hi, &json!("MAX_TOKENS"), "hi", ModelFinishReason::Length);
    check(&json!(null), &json!("MAX_TOKENS"), "", ModelFinishReason::Length);
    check(&hi, &json!("SAFETY"), "hi", ModelFinishReason::Filtered);
    check(&hi, &json!("MALFORMED_FUNCTION_CALL"), "hi", ModelFinishReason::Other("MALFORMED_FUNCTION_CALL".into()));
    let blocked = json!({"promptFeedback": {"blockReason": "SAFETY"}, "modelVersion": "m",
        "usageMetadata": {"promptTokenCount": 5}});
    check_answer(ModelWireFormat::Gemini, &blocked, "", ModelFinishReason::Filtered, [5, 0, 0, 0, 0]);
}

#[test]
fn flaws() {
    for format in ALL {
        for (body, want) in [
            ("", AnswerFlaw::Empty),
            (" \n", AnswerFlaw::Empty),
            ("<html>", AnswerFlaw::Html),
            (r#"{"choices":[{"message":{"cont"#, AnswerFlaw::NotJson),
            ("data: {}", AnswerFlaw::NotJson),
            ("{}", AnswerFlaw::NoChoice),
            ("[]", AnswerFlaw::NoChoice),
            (r#"{"choices":[],"content":{},"output":7,"candidates":[]}"#, AnswerFlaw::NoChoice),
            (r#"{"choices":[{}],"content":"hi","output":null,"candidates":[7]}"#, AnswerFlaw::NoChoice),
            (r#"{"choices":[{"message":"hi"}]}"#, AnswerFlaw::NoChoice),
            (r#"{"choices":{"0":1}}"#, AnswerFlaw::NoChoice),
            (r#"{"output":[],"status":"failed","error":{"code":"server_error"}}"#, AnswerFlaw::NoChoice),
        ] {
            assert_eq!(format.decode_answer(body, &request()), Err(want), "{format:?} {body}");
        }
    }
}

/// An answer with this text and usage.
fn answer_body(format: ModelWireFormat, text: &str, usage: &Value) -> String {
    match format {
        ModelWireFormat::Chat => json!({"choices": [{"message": {"content": text}}], "usage": usage}),
        ModelWireFormat::Responses => json!({"output": [{"content": [{"text": text}]}], "usage": usage}),
        ModelWireFormat::Messages => json!({"content": [{"type": "text", "text": text}], "usage": usage}),
        ModelWireFormat::Gemini => {
            json!({"candidates": [{"content": {"parts": [{"text": text}]}}], "usageMetadata": usage})
        }
    }
    .to_string()
}

/// The field names of prompt and output tokens.
fn usage_field_names(format: ModelWireFormat) -> (&'static str, &'static str) {
    match format {
        ModelWireFormat::Chat => ("prompt_tokens", "completion_tokens"),
        ModelWireFormat::Responses | ModelWireFormat::Messages => ("input_tokens", "output_tokens"),
        ModelWireFormat::Gemini => ("promptTokenCount", "candidatesTokenCount"),
    }
}

#[test]
fn implausible_usage_is_not_trusted() {
    let lie = r#"{"usage":{"prompt_tokens":1,"completion_tokens":1,"input_tokens":1,"output_tokens":1}}"#;
    for format in ALL {
        let (prompt, output) = usage_field_names(format);
        let pair = |input: Value, output_tokens: Value| json!({ prompt: input, output: output_tokens });
        let good = format.decode_answer(&answer_body(format, lie, &pair(json!(50), json!(9))), &request()).unwrap();
        let want = TokenUsage { input: 50, output: 9, ..TokenUsage::default() };
        assert_eq!((good.usage, good.usage_reported), (want, true), "{format:?}");
        for usage in [
            json!(null),
            json!({}),
            json!([1]),
            json!("lots"),
            pair(json!(-5), json!(9)),
            pair(json!("5"), json!(9)),
            pair(json!(0), json!(9)),
            pair(json!(5.5), json!(9)),
            pair(json!(5), json!(0)),
            pair(json!(5), json!(-9)),
            pair(json!(u64::MAX), json!(9)),
            pair(json!(5), json!(u64::MAX)),
            pair(json!(90_000_000), json!(9)),
            pair(json!(5), json!(900_000_000)),
        ] {
            let answer = format.decode_answer(&answer_body(format, lie, &usage), &request()).unwrap();
            let guess = estimate_usage(&request(), lie.len());
            assert_eq!((answer.usage, answer.usage_reported), (guess, false), "{format:?} {usage}");
        }
        // More than the prompt can contain, but what a server that adds to it may charge.
        let more =
            format.decode_answer(&answer_body(format, lie, &pair(json!(120_000), json!(2000))), &request()).unwrap();
        let want = TokenUsage { input: 120_000, output: 2000, ..TokenUsage::default() };
        assert_eq!((more.usage, more.usage_reported), (want, false), "{format:?}");
    }
    let thinks = json!({"choices": [{"message": {"content": "", "reasoning_content": "thinking"}}]}).to_string();
    assert_eq!(ModelWireFormat::Chat.decode_answer(&thinks, &request()).unwrap().usage.output, 2);
    let thinks = json!({"content": [{"type": "thinking", "thinking": "thinking"}]}).to_string();
    assert_eq!(ModelWireFormat::Messages.decode_answer(&thinks, &request()).unwrap().usage.output, 2);
}

/// Details of prompt and completion, as chat servers report them.
#[test]
fn details_of_chat_usage() {
    #[track_caller]
    fn check(usage: &Value, [input, cached_input, cache_write, output, reasoning]: [u64; 5]) {
        let want = TokenUsage { input, cached_input, cache_write, output, reasoning, ..TokenUsage::default() };
        let answer =
            ModelWireFormat::Chat.decode_answer(&answer_body(ModelWireFormat::Chat, "hi", usage), &request()).unwrap();
        assert_eq!((answer.usage, answer.usage_reported), (want, true), "{usage}");
    }
    check(
        &json!({"prompt_tokens": 50, "completion_tokens": 9, "total_tokens": 59,
            "prompt_tokens_details": {"cached_tokens": 20, "cache_write_tokens": 4},
            "completion_tokens_details": {"reasoning_tokens": 3}}),
        [26, 20, 4, 9, 3],
    );
    check(
        &json!({"prompt_tokens": 50, "completion_tokens": 9, "prompt_tokens_details": null,
            "completion_tokens_details": null}),
        [50, 0, 0, 9, 0],
    );
    check(&json!({"prompt_tokens": 50, "completion_tokens": 9, "prompt_cache_hit_tokens": 30}), [20, 30, 0, 9, 0]);
    // Reasoning counted beside the completion.
    check(
        &json!({"prompt_tokens": 50, "completion_tokens": 9, "total_tokens": 159,
            "completion_tokens_details": {"reasoning_tokens": 100}}),
        [50, 0, 0, 109, 100],
    );
    // Impossible details are dropped; the totals stay.
    check(
        &json!({"prompt_tokens": 5, "completion_tokens": 9,
            "prompt_tokens_details": {"cached_tokens": 6, "cache_write_tokens": -1},
            "completion_tokens_details": {"reasoning_tokens": 10}}),
        [5, 0, 0, 9, 9],
    );
}

proptest! {
    #[test]
    fn any_body_parses_without_panic(body in "\\PC{0,300}", at in 0..4_usize) {
        let _ = ALL[at].decode_answer(&body, &request());
    }

    #[test]
    fn any_answer_parses_without_panic(
        at in 0..4_usize,
        text in ".{0,20}",
        words in proptest::collection::vec("[a-zA-Z_]{0,12}|max_tokens|SAFETY|failed", 3),
        number: i64,
    ) {
        let part = json!({"type": words[0], "text": text, "thinking": text, "thought": number % 2 == 0});
        let body = json!({"choices": [{"message": {"content": [part]}, "finish_reason": words[1]}], "model": words[2],
            "content": [part], "stop_reason": words[1], "status": words[1], "output": [{"content": [part]}],
            "candidates": [{"content": {"parts": [part]}, "finishReason": words[1]}],
            "usage": {"prompt_tokens": number, "input_tokens": number, "output_tokens": words[0]},
            "usageMetadata": {"promptTokenCount": number, "totalTokenCount": number}});
        if let Ok(answer) = ALL[at].decode_answer(&body.to_string(), &request()) {
            prop_assert!(answer.usage.total() > 0);
            prop_assert!(answer.usage.output <= 1_000_000);
        }
    }

    #[test]
    fn usage_never_exceeds_what_was_reported(prompt in 0..40_000_u64, completion: u64, cached: u64, reasoning: u64) {
        let given = json!({"prompt_tokens": prompt, "completion_tokens": completion,
            "prompt_tokens_details": {"cached_tokens": cached},
            "completion_tokens_details": {"reasoning_tokens": reasoning}});
        let answer = ModelWireFormat::Chat.decode_answer(&answer_body(ModelWireFormat::Chat, "hi", &given), &request()).unwrap();
        if answer.usage_reported {
            prop_assert_eq!(answer.usage.total(), prompt + completion);
            prop_assert!(answer.usage.reasoning <= answer.usage.output);
        }
    }
}
