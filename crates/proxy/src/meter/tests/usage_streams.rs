//! Tests of what is read from answers, API by API.

use bytes::Bytes;
use ralph_core::price::TokenUsage;

use super::super::{MeteredAnswer, ModelCallKind, UsageTee};

pub(super) const EVENTS: &str = "text/event-stream; charset=utf-8";
const JSON: &str = "application/json";

fn gemini() -> ModelCallKind {
    ModelCallKind::Gemini { model: "g".to_owned(), stream: true }
}

fn read(call: &ModelCallKind, kind: &str, body: &str) -> MeteredAnswer {
    let mut tee = UsageTee::new(call, Some(kind), false);
    assert_eq!(tee.pass(Bytes::copy_from_slice(body.as_bytes())), body, "not a byte is changed");
    assert_eq!(tee.finish(), "", "nothing is held back");
    tee.snapshot()
}

/// Writes events in the format of all APIs.
pub(super) fn events(list: &[&str]) -> String {
    list.iter().flat_map(|data| ["event: x\ndata: ", data, "\n\n"]).collect()
}

#[track_caller]
fn check(call: &ModelCallKind, list: &[&str], want: &MeteredAnswer) {
    assert_eq!(read(call, EVENTS, &events(list)), *want);
    // Mislabelled, and with other line ends.
    assert_eq!(read(call, JSON, &events(list).replace('\n', "\r\n")), *want);
}

#[track_caller]
fn check_json(call: &ModelCallKind, body: &str, want: &MeteredAnswer) {
    assert_eq!(read(call, JSON, body), *want);
}

#[expect(clippy::unnecessary_wraps, reason = "it is compared with what may be missing")]
fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

pub(super) const START: &str = r#"{"type":"message_start","message":{"model":"claude","content":[],"stop_reason":null,"usage":{"input_tokens":11,"cache_creation_input_tokens":100,"cache_read_input_tokens":200,"output_tokens":1,"cache_creation":{"ephemeral_5m_input_tokens":60,"ephemeral_1h_input_tokens":40}}}}"#;
pub(super) const BLOCK: &str = r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"{\"type\":\"message_delta\",\"usage\":{\"output_tokens\":0}}"}}"#;
pub(super) const DELTA: &str =
    r#"{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":7}}"#;
pub(super) const STOP: &str = r#"{"type":"message_stop"}"#;

#[test]
fn anthropic_streams() {
    let call = ModelCallKind::Messages;
    let begun = TokenUsage {
        input: 11,
        cached_input: 200,
        cache_write: 60,
        cache_write_long: 40,
        output: 1,
        ..TokenUsage::default()
    };
    let seen = MeteredAnswer { usage: Some(begun), model: text("claude"), ..MeteredAnswer::default() };
    check(&call, &[START, r#"{"type":"ping"}"#, BLOCK], &seen);
    // An end without usage is not final.
    check(&call, &[START, BLOCK, STOP], &seen);
    let whole =
        MeteredAnswer { usage: Some(TokenUsage { output: 7, ..begun }), stop: text("tool_use"), ..seen.clone() };
    check(&call, &[START, BLOCK, DELTA], &whole);
    check(&call, &[START, BLOCK, DELTA, STOP], &MeteredAnswer { complete: true, ..whole.clone() });
    // A later count wins, field by field; null and zero do not erase.
    let later = r#"{"type":"message_delta","delta":{},"usage":{"input_tokens":12,"cache_read_input_tokens":0,"cache_creation_input_tokens":null,"output_tokens":9}}"#;
    let more = TokenUsage { input: 12, output: 9, ..begun };
    check(&call, &[START, DELTA, later, STOP], &MeteredAnswer { usage: Some(more), complete: true, ..whole.clone() });
    let error = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    check(&call, &[START, error], &MeteredAnswer { failed: text("overloaded_error: Overloaded"), ..seen.clone() });
    check(
        &call,
        &[START, DELTA, error, STOP],
        &MeteredAnswer { failed: text("overloaded_error: Overloaded"), ..whole },
    );
    // Implausible numbers are ignored, and broken events are not read.
    let absurd = r#"{"type":"message_delta","usage":{"output_tokens":18446744073709551615}}"#;
    let minus = r#"{"type":"message_delta","usage":{"output_tokens":-1}}"#;
    check(&call, &[START, absurd, minus, "{\"type\":", "[DONE]", "", STOP], &seen);
    check(&call, &[], &MeteredAnswer::default());
}

#[test]
fn anthropic_bodies() {
    let usage = TokenUsage { input: 11, cache_write_long: 5, output: 7, ..TokenUsage::default() };
    check_json(
        &ModelCallKind::Messages,
        r#"{"type":"message","model":"m","content":[{"type":"text","text":"x","usage":{"output_tokens":99}}],"stop_reason":"end_turn","usage":{"input_tokens":11,"cache_creation":{"ephemeral_1h_input_tokens":5},"output_tokens":7}}"#,
        &MeteredAnswer { usage: Some(usage), complete: true, model: text("m"), stop: text("end_turn"), failed: None },
    );
    check_json(
        &ModelCallKind::Messages,
        r#"{"type":"error","error":{"type":"not_found_error","message":"no model"}}"#,
        &MeteredAnswer { failed: text("not_found_error: no model"), ..MeteredAnswer::default() },
    );
    check_json(&ModelCallKind::Messages, "{\"usage\":{\"output_tokens\":7}", &MeteredAnswer::default());
    check_json(&ModelCallKind::Messages, "<html>bad gateway</html>", &MeteredAnswer::default());
}

pub(super) const CHUNK: &str =
    r#"{"model":"m","choices":[{"index":0,"delta":{"content":"\"usage\""},"finish_reason":null}],"usage":null}"#;
pub(super) const FINISH: &str = r#"{"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
pub(super) const COUNT: &str = r#"{"model":"m","choices":[],"usage":{"prompt_tokens":50,"completion_tokens":9,"total_tokens":59,"prompt_tokens_details":{"cached_tokens":20},"completion_tokens_details":{"reasoning_tokens":3}}}"#;

#[test]
fn chat_streams() {
    let usage = TokenUsage { input: 30, cached_input: 20, output: 9, reasoning: 3, ..TokenUsage::default() };
    let begun = MeteredAnswer { model: text("m"), ..MeteredAnswer::default() };
    let finished = MeteredAnswer { stop: text("stop"), ..begun.clone() };
    let counted = MeteredAnswer { usage: Some(usage), complete: true, ..finished.clone() };
    check(&ModelCallKind::Chat, &[CHUNK], &begun);
    check(&ModelCallKind::Chat, &[CHUNK, FINISH, "[DONE]"], &finished);
    check(&ModelCallKind::Chat, &[CHUNK, FINISH, COUNT], &counted);
    check(&ModelCallKind::Chat, &[CHUNK, COUNT], &MeteredAnswer { usage: Some(usage), ..begun.clone() });
    check(&ModelCallKind::Chat, &[CHUNK, FINISH, COUNT, " [DONE]"], &counted);
    let error = r#"{"error":{"message":"too many","type":null,"code":429}}"#;
    check(&ModelCallKind::Chat, &[CHUNK, error, "[DONE]"], &MeteredAnswer { failed: text("429: too many"), ..begun });
    // A prompt of zero tokens is a mistake; the last plausible count is kept.
    let nothing = r#"{"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":0}}"#;
    check(&ModelCallKind::Chat, &[CHUNK, FINISH, COUNT, nothing, "[DONE]"], &counted);
}

/// With several choices and usage in every chunk, the end of the first choice is not the final usage.
#[test]
fn chat_streams_of_several_choices() {
    let chunk = |index: u32, end: &str, so_far: u32| {
        format!(
            r#"{{"model":"m","choices":[{{"index":{index},"delta":{{"content":"x"}},"finish_reason":{end}}}],"usage":{{"prompt_tokens":50,"completion_tokens":{so_far}}}}}"#
        )
    };
    let begun = [chunk(0, "null", 1), chunk(1, "null", 2), chunk(0, "\"stop\"", 3)];
    let sequential = [chunk(0, "null", 1), chunk(0, "\"stop\"", 3)];
    let ended = [chunk(1, "null", 8), chunk(1, "\"stop\"", 9)];
    let seen = |output: u64, complete: bool| MeteredAnswer {
        usage: Some(TokenUsage { input: 50, output, ..TokenUsage::default() }),
        complete,
        model: text("m"),
        stop: text("stop"),
        failed: None,
    };
    for first in [&begun[..], &sequential] {
        let lines = |more: &[&str]| -> Vec<String> {
            first.iter().chain(&ended).cloned().chain(more.iter().map(ToString::to_string)).collect()
        };
        let check_all = |lines: &[String], want: &MeteredAnswer| {
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            check(&ModelCallKind::Chat, &lines, want);
        };
        check_all(first, &seen(3, false));
        check_all(&lines(&["[DONE]"]), &seen(9, true));
        let last = r#"{"choices":[],"usage":{"prompt_tokens":50,"completion_tokens":9}}"#;
        check_all(&lines(&[last]), &seen(9, true));
    }
}

#[test]
fn chat_bodies() {
    #[track_caller]
    fn counts(usage: &str, want: TokenUsage) {
        let body =
            format!(r#"{{"choices":[{{"message":{{"content":null}},"finish_reason":"stop"}}],"usage":{usage}}}"#);
        let want = MeteredAnswer { usage: Some(want), complete: true, stop: text("stop"), ..MeteredAnswer::default() };
        check_json(&ModelCallKind::Chat, &body, &want);
    }
    let plain = TokenUsage { input: 50, output: 9, ..TokenUsage::default() };
    counts(r#"{"prompt_tokens":50,"completion_tokens":9}"#, plain);
    counts(
        r#"{"prompt_tokens":50,"completion_tokens":9,"prompt_cache_hit_tokens":8}"#,
        TokenUsage { input: 42, cached_input: 8, ..plain },
    );
    // Reasoning beside the completion, as the total shows.
    counts(
        r#"{"prompt_tokens":50,"completion_tokens":9,"total_tokens":62,"completion_tokens_details":{"reasoning_tokens":3}}"#,
        TokenUsage { output: 12, reasoning: 3, ..plain },
    );
    counts(
        r#"{"prompt_tokens":50,"completion_tokens":9,"prompt_tokens_details":{"cached_tokens":60,"cache_write_tokens":4}}"#,
        TokenUsage { input: 46, cache_write: 4, ..plain },
    );
    check_json(
        &ModelCallKind::Chat,
        r#"{"error":"boom"}"#,
        &MeteredAnswer { failed: text("boom"), ..MeteredAnswer::default() },
    );
}

#[test]
fn responses() {
    let call = ModelCallKind::Responses;
    let usage =
        TokenUsage { input: 28, cached_input: 20, cache_write: 2, output: 9, reasoning: 3, ..TokenUsage::default() };
    let counts = r#""usage":{"input_tokens":50,"input_tokens_details":{"cached_tokens":20,"cache_write_tokens":2},"output_tokens":9,"output_tokens_details":{"reasoning_tokens":3},"total_tokens":59}"#;
    let created = r#"{"type":"response.created","response":{"model":"m","status":"in_progress","usage":null}}"#;
    let words = r#"{"type":"response.output_text.delta","delta":"{\"type\":\"response.completed\"}"}"#;
    let done = |kind: &str, rest: &str| {
        format!(r#"{{"type":"response.{kind}","response":{{"model":"m","status":"{kind}",{counts}{rest}}}}}"#)
    };
    let begun = MeteredAnswer { model: text("m"), ..MeteredAnswer::default() };
    let whole = MeteredAnswer { usage: Some(usage), complete: true, stop: text("completed"), ..begun.clone() };
    check(&call, &[created, words], &begun);
    check(&call, &[created, words, &done("completed", r#","error":null,"incomplete_details":null"#)], &whole);
    check(
        &call,
        &[created, &done("incomplete", r#","incomplete_details":{"reason":"max_output_tokens"}"#)],
        &MeteredAnswer { stop: text("max_output_tokens"), ..whole.clone() },
    );
    check(
        &call,
        &[created, &done("failed", r#","error":{"code":"server_error","message":"sorry"}"#)],
        &MeteredAnswer { stop: text("failed"), failed: text("server_error: sorry"), ..whole.clone() },
    );
    check(
        &call,
        &[created, r#"{"type":"error","code":"rate_limit_exceeded","message":"slow down","param":null}"#],
        &MeteredAnswer { failed: text("rate_limit_exceeded: slow down"), ..begun },
    );
    check_json(&call, &format!(r#"{{"model":"m","status":"completed","error":null,{counts}}}"#), &whole);
}

#[test]
fn gemini_answers() {
    let first = r#"{"candidates":[{"content":{"parts":[{"text":"usageMetadata"}]}}],"usageMetadata":{"promptTokenCount":50,"candidatesTokenCount":1},"modelVersion":"g-1"}"#;
    let last = r#"{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":50,"cachedContentTokenCount":20,"toolUsePromptTokenCount":4,"candidatesTokenCount":9,"thoughtsTokenCount":3}}"#;
    let begun = MeteredAnswer {
        usage: Some(TokenUsage { input: 50, output: 1, ..TokenUsage::default() }),
        model: text("g-1"),
        ..MeteredAnswer::default()
    };
    let usage = TokenUsage { input: 34, cached_input: 20, output: 12, reasoning: 3, ..TokenUsage::default() };
    let whole = MeteredAnswer { usage: Some(usage), complete: true, stop: text("STOP"), ..begun.clone() };
    check(&gemini(), &[first], &begun);
    check(&gemini(), &[first, last], &whole);
    check_json(&gemini(), &format!("[{first}\n,\n{last}]"), &whole);
    check_json(&gemini(), &format!(" \n{last}"), &MeteredAnswer { model: None, ..whole });
    check_json(
        &gemini(),
        r#"{"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":5}}"#,
        &MeteredAnswer {
            usage: Some(TokenUsage { input: 5, ..TokenUsage::default() }),
            complete: true,
            stop: text("SAFETY"),
            ..MeteredAnswer::default()
        },
    );
    check_json(
        &gemini(),
        r#"[{"error":{"code":429,"message":"full","status":"RESOURCE_EXHAUSTED"}}]"#,
        &MeteredAnswer { failed: text("RESOURCE_EXHAUSTED: full"), ..MeteredAnswer::default() },
    );
}

#[test]
fn the_end_of_a_gemini_stream_is_the_end_of_its_body() {
    let mut tee = UsageTee::new(&gemini(), Some(EVENTS), false);
    let last = r#"{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":5}}"#;
    tee.pass(Bytes::from(events(&[last])));
    assert!(!tee.snapshot().complete);
    tee.finish();
    assert!(tee.snapshot().complete);
}
