//! What is read out of answers, wire by wire.

use bytes::Bytes;
use ralph_core::price::Usage;

use super::super::{Call, Seen, Tee};

pub(super) const EVENTS: &str = "text/event-stream; charset=utf-8";
const JSON: &str = "application/json";

fn gemini() -> Call {
    Call::Gemini { model: "g".to_owned(), stream: true }
}

fn read(call: &Call, kind: &str, body: &str) -> Seen {
    let mut tee = Tee::new(call, Some(kind), false);
    assert_eq!(tee.pass(Bytes::copy_from_slice(body.as_bytes())), body, "not a byte is changed");
    assert_eq!(tee.rest(), "", "nothing is held back");
    tee.seen()
}

/// Writes events the way all wires do.
pub(super) fn events(list: &[&str]) -> String {
    list.iter().flat_map(|data| ["event: x\ndata: ", data, "\n\n"]).collect()
}

#[track_caller]
fn check(call: &Call, list: &[&str], want: &Seen) {
    assert_eq!(read(call, EVENTS, &events(list)), *want);
    // Mislabelled, and with other line ends.
    assert_eq!(read(call, JSON, &events(list).replace('\n', "\r\n")), *want);
}

#[track_caller]
fn check_json(call: &Call, body: &str, want: &Seen) {
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
    let call = Call::Messages;
    let begun =
        Usage { input: 11, cached_input: 200, cache_write: 60, cache_write_long: 40, output: 1, ..Usage::default() };
    let seen = Seen { usage: Some(begun), model: text("claude"), ..Seen::default() };
    check(&call, &[START, r#"{"type":"ping"}"#, BLOCK], &seen);
    // An end without a count is no end.
    check(&call, &[START, BLOCK, STOP], &seen);
    let whole = Seen { usage: Some(Usage { output: 7, ..begun }), stop: text("tool_use"), ..seen.clone() };
    check(&call, &[START, BLOCK, DELTA], &whole);
    check(&call, &[START, BLOCK, DELTA, STOP], &Seen { complete: true, ..whole.clone() });
    // A later count wins, field by field; nothing and zero do not erase.
    let later = r#"{"type":"message_delta","delta":{},"usage":{"input_tokens":12,"cache_read_input_tokens":0,"cache_creation_input_tokens":null,"output_tokens":9}}"#;
    let more = Usage { input: 12, output: 9, ..begun };
    check(&call, &[START, DELTA, later, STOP], &Seen { usage: Some(more), complete: true, ..whole.clone() });
    let error = r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#;
    check(&call, &[START, error], &Seen { failed: text("overloaded_error: Overloaded"), ..seen.clone() });
    check(&call, &[START, DELTA, error, STOP], &Seen { failed: text("overloaded_error: Overloaded"), ..whole });
    // What cannot be true is not believed, and what is broken is not read.
    let absurd = r#"{"type":"message_delta","usage":{"output_tokens":18446744073709551615}}"#;
    let minus = r#"{"type":"message_delta","usage":{"output_tokens":-1}}"#;
    check(&call, &[START, absurd, minus, "{\"type\":", "[DONE]", "", STOP], &seen);
    check(&call, &[], &Seen::default());
}

#[test]
fn anthropic_bodies() {
    let usage = Usage { input: 11, cache_write_long: 5, output: 7, ..Usage::default() };
    check_json(
        &Call::Messages,
        r#"{"type":"message","model":"m","content":[{"type":"text","text":"x","usage":{"output_tokens":99}}],"stop_reason":"end_turn","usage":{"input_tokens":11,"cache_creation":{"ephemeral_1h_input_tokens":5},"output_tokens":7}}"#,
        &Seen { usage: Some(usage), complete: true, model: text("m"), stop: text("end_turn"), failed: None },
    );
    check_json(
        &Call::Messages,
        r#"{"type":"error","error":{"type":"not_found_error","message":"no model"}}"#,
        &Seen { failed: text("not_found_error: no model"), ..Seen::default() },
    );
    check_json(&Call::Messages, "{\"usage\":{\"output_tokens\":7}", &Seen::default());
    check_json(&Call::Messages, "<html>bad gateway</html>", &Seen::default());
}

pub(super) const CHUNK: &str =
    r#"{"model":"m","choices":[{"index":0,"delta":{"content":"\"usage\""},"finish_reason":null}],"usage":null}"#;
pub(super) const FINISH: &str = r#"{"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
pub(super) const COUNT: &str = r#"{"model":"m","choices":[],"usage":{"prompt_tokens":50,"completion_tokens":9,"total_tokens":59,"prompt_tokens_details":{"cached_tokens":20},"completion_tokens_details":{"reasoning_tokens":3}}}"#;

#[test]
fn chat_streams() {
    let usage = Usage { input: 30, cached_input: 20, output: 9, reasoning: 3, ..Usage::default() };
    let begun = Seen { model: text("m"), ..Seen::default() };
    let finished = Seen { stop: text("stop"), ..begun.clone() };
    let counted = Seen { usage: Some(usage), complete: true, ..finished.clone() };
    check(&Call::Chat, &[CHUNK], &begun);
    check(&Call::Chat, &[CHUNK, FINISH, "[DONE]"], &finished);
    check(&Call::Chat, &[CHUNK, FINISH, COUNT], &counted);
    check(&Call::Chat, &[CHUNK, COUNT], &Seen { usage: Some(usage), ..begun.clone() });
    check(&Call::Chat, &[CHUNK, FINISH, COUNT, " [DONE]"], &counted);
    let error = r#"{"error":{"message":"too many","type":null,"code":429}}"#;
    check(&Call::Chat, &[CHUNK, error, "[DONE]"], &Seen { failed: text("429: too many"), ..begun });
    // No prompt at all is a mistake; the last count that can be true stays.
    let nothing = r#"{"choices":[],"usage":{"prompt_tokens":0,"completion_tokens":0}}"#;
    check(&Call::Chat, &[CHUNK, FINISH, COUNT, nothing, "[DONE]"], &counted);
}

/// With several choices and a count in every chunk, the end of the first choice is not the end of the count.
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
    let seen = |output: u64, complete: bool| Seen {
        usage: Some(Usage { input: 50, output, ..Usage::default() }),
        complete,
        model: text("m"),
        stop: text("stop"),
        failed: None,
    };
    for first in [&begun[..], &sequential] {
        let lines = |more: &[&str]| -> Vec<String> {
            first.iter().chain(&ended).cloned().chain(more.iter().map(ToString::to_string)).collect()
        };
        let check_all = |lines: &[String], want: &Seen| {
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            check(&Call::Chat, &lines, want);
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
    fn counts(usage: &str, want: Usage) {
        let body =
            format!(r#"{{"choices":[{{"message":{{"content":null}},"finish_reason":"stop"}}],"usage":{usage}}}"#);
        let want = Seen { usage: Some(want), complete: true, stop: text("stop"), ..Seen::default() };
        check_json(&Call::Chat, &body, &want);
    }
    let plain = Usage { input: 50, output: 9, ..Usage::default() };
    counts(r#"{"prompt_tokens":50,"completion_tokens":9}"#, plain);
    counts(
        r#"{"prompt_tokens":50,"completion_tokens":9,"prompt_cache_hit_tokens":8}"#,
        Usage { input: 42, cached_input: 8, ..plain },
    );
    // Reasoning beside the completion, as the total gives away.
    counts(
        r#"{"prompt_tokens":50,"completion_tokens":9,"total_tokens":62,"completion_tokens_details":{"reasoning_tokens":3}}"#,
        Usage { output: 12, reasoning: 3, ..plain },
    );
    counts(
        r#"{"prompt_tokens":50,"completion_tokens":9,"prompt_tokens_details":{"cached_tokens":60,"cache_write_tokens":4}}"#,
        Usage { input: 46, cache_write: 4, ..plain },
    );
    check_json(&Call::Chat, r#"{"error":"boom"}"#, &Seen { failed: text("boom"), ..Seen::default() });
}

#[test]
fn responses() {
    let call = Call::Responses;
    let usage = Usage { input: 28, cached_input: 20, cache_write: 2, output: 9, reasoning: 3, ..Usage::default() };
    let counts = r#""usage":{"input_tokens":50,"input_tokens_details":{"cached_tokens":20,"cache_write_tokens":2},"output_tokens":9,"output_tokens_details":{"reasoning_tokens":3},"total_tokens":59}"#;
    let created = r#"{"type":"response.created","response":{"model":"m","status":"in_progress","usage":null}}"#;
    let words = r#"{"type":"response.output_text.delta","delta":"{\"type\":\"response.completed\"}"}"#;
    let done = |kind: &str, rest: &str| {
        format!(r#"{{"type":"response.{kind}","response":{{"model":"m","status":"{kind}",{counts}{rest}}}}}"#)
    };
    let begun = Seen { model: text("m"), ..Seen::default() };
    let whole = Seen { usage: Some(usage), complete: true, stop: text("completed"), ..begun.clone() };
    check(&call, &[created, words], &begun);
    check(&call, &[created, words, &done("completed", r#","error":null,"incomplete_details":null"#)], &whole);
    check(
        &call,
        &[created, &done("incomplete", r#","incomplete_details":{"reason":"max_output_tokens"}"#)],
        &Seen { stop: text("max_output_tokens"), ..whole.clone() },
    );
    check(
        &call,
        &[created, &done("failed", r#","error":{"code":"server_error","message":"sorry"}"#)],
        &Seen { stop: text("failed"), failed: text("server_error: sorry"), ..whole.clone() },
    );
    check(
        &call,
        &[created, r#"{"type":"error","code":"rate_limit_exceeded","message":"slow down","param":null}"#],
        &Seen { failed: text("rate_limit_exceeded: slow down"), ..begun },
    );
    check_json(&call, &format!(r#"{{"model":"m","status":"completed","error":null,{counts}}}"#), &whole);
}

#[test]
fn gemini_answers() {
    let first = r#"{"candidates":[{"content":{"parts":[{"text":"usageMetadata"}]}}],"usageMetadata":{"promptTokenCount":50,"candidatesTokenCount":1},"modelVersion":"g-1"}"#;
    let last = r#"{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":50,"cachedContentTokenCount":20,"toolUsePromptTokenCount":4,"candidatesTokenCount":9,"thoughtsTokenCount":3}}"#;
    let begun =
        Seen { usage: Some(Usage { input: 50, output: 1, ..Usage::default() }), model: text("g-1"), ..Seen::default() };
    let usage = Usage { input: 34, cached_input: 20, output: 12, reasoning: 3, ..Usage::default() };
    let whole = Seen { usage: Some(usage), complete: true, stop: text("STOP"), ..begun.clone() };
    check(&gemini(), &[first], &begun);
    check(&gemini(), &[first, last], &whole);
    check_json(&gemini(), &format!("[{first}\n,\n{last}]"), &whole);
    check_json(&gemini(), &format!(" \n{last}"), &Seen { model: None, ..whole });
    check_json(
        &gemini(),
        r#"{"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":5}}"#,
        &Seen {
            usage: Some(Usage { input: 5, ..Usage::default() }),
            complete: true,
            stop: text("SAFETY"),
            ..Seen::default()
        },
    );
    check_json(
        &gemini(),
        r#"[{"error":{"code":429,"message":"full","status":"RESOURCE_EXHAUSTED"}}]"#,
        &Seen { failed: text("RESOURCE_EXHAUSTED: full"), ..Seen::default() },
    );
}

#[test]
fn the_end_of_a_gemini_stream_is_the_end_of_its_body() {
    let mut tee = Tee::new(&gemini(), Some(EVENTS), false);
    let last = r#"{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":5}}"#;
    tee.pass(Bytes::from(events(&[last])));
    assert!(!tee.seen().complete);
    tee.rest();
    assert!(tee.seen().complete);
}
