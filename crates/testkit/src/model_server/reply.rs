//! Turns one scripted turn into an answer, without a socket.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use super::billing;
use super::reply_body::{ReplyBody, ReplyBodyEnd};
use super::script::{BilledTokens, ScriptedTurn, UsageReport};
use super::wire::{FakeModelAnswer, FakeModelCall, FakeModelContent, FakeStopReason, StreamFormat};

/// What is sent, and what is billed.
#[derive(Debug)]
pub(super) struct FakeModelReply {
    pub(super) status: u16,
    pub(super) content_type: String,
    pub(super) headers: Vec<(String, String)>,
    /// The delay before the first byte.
    pub(super) before: Duration,
    pub(super) body: ReplyBody,
    pub(super) billed: Option<BilledTokens>,
}

/// What the wrapping turns ask for.
#[derive(Debug, Default)]
struct ReplyDelivery {
    before: Duration,
    between: Duration,
    cut: Option<usize>,
    fail: Option<(usize, String, String)>,
}

/// Plays a turn. `seen` is the text of the request's headers, for a turn that repeats them.
pub(super) fn reply_to_turn(turn: &ScriptedTurn, call: &FakeModelCall, number: usize, seen: &str) -> FakeModelReply {
    let mut manner = ReplyDelivery::default();
    let mut turn = turn;
    loop {
        turn = match turn {
            ScriptedTurn::Slow { before, between, then } => {
                (manner.before, manner.between) = (*before, *between);
                then
            }
            ScriptedTurn::Cut { after_events, then } => {
                manner.cut = Some(*after_events);
                then
            }
            ScriptedTurn::Fail { after_events, kind, message, then } => {
                manner.fail = Some((*after_events, kind.clone(), message.clone()));
                then
            }
            _ => break,
        };
    }
    match turn {
        ScriptedTurn::Text { text, usage } => text_reply(call, number, text, *usage, manner),
        ScriptedTurn::Echo => text_reply(call, number, seen, UsageReport::Counted, manner),
        ScriptedTurn::Tool { name, input, usage } => {
            let counted = billing::tokens_of_bytes(input.to_string().len());
            let (billed, reported) = billed_and_reported(*usage, call, counted);
            let content = FakeModelContent::Tool { name: name.clone(), input: input.clone() };
            model_reply(call, &model_answer(call, number, content, FakeStopReason::Tool, reported), billed, manner)
        }
        ScriptedTurn::Error { status, kind, message, headers } => {
            let body = call.wire.error(*status, kind, message);
            let played = plain_reply(*status, JSON, body.to_string().into(), manner.before);
            FakeModelReply { headers: headers.clone(), ..played }
        }
        ScriptedTurn::Malformed => malformed_reply(call, manner.before),
        ScriptedTurn::Html => plain_reply(502, "text/html; charset=utf-8", PAGE.into(), manner.before),
        ScriptedTurn::Raw { status, content_type, body } => {
            plain_reply(*status, content_type, body.clone(), manner.before)
        }
        ScriptedTurn::Slow { .. } | ScriptedTurn::Cut { .. } | ScriptedTurn::Fail { .. } => {
            unreachable!("the loop above ends at a turn that is none of these")
        }
    }
}

const JSON: &str = "application/json";
const SSE: &str = "text/event-stream; charset=utf-8";
const PAGE: &str = "<!DOCTYPE html><html><head><title>502 Bad Gateway</title></head><body>gateway</body></html>";

/// Returns an answer that is not a model's.
pub(super) fn plain_reply(status: u16, content_type: &str, body: Vec<u8>, before: Duration) -> FakeModelReply {
    FakeModelReply {
        status,
        content_type: content_type.to_owned(),
        headers: Vec::new(),
        before,
        body: ReplyBody::complete(body),
        billed: None,
    }
}

/// Returns a JSON answer that is not a model's.
pub(super) fn json_reply(status: u16, value: &Value) -> FakeModelReply {
    plain_reply(status, JSON, value.to_string().into(), Duration::ZERO)
}

fn text_reply(
    call: &FakeModelCall,
    number: usize,
    text: &str,
    usage: UsageReport,
    manner: ReplyDelivery,
) -> FakeModelReply {
    let (shown, counted) = match usage {
        UsageReport::Counted => billing::truncate_words(text, call.max_tokens),
        UsageReport::Reported(_) | UsageReport::Unreported(_) | UsageReport::Misreported { .. } => (text, 0),
    };
    let stop = if shown.len() < text.len() { FakeStopReason::Length } else { FakeStopReason::End };
    let (billed, reported) = billed_and_reported(usage, call, counted);
    model_reply(
        call,
        &model_answer(call, number, FakeModelContent::Text(shown.to_owned()), stop, reported),
        billed,
        manner,
    )
}

/// Returns the usage that is billed and the usage that is reported.
fn billed_and_reported(usage: UsageReport, call: &FakeModelCall, output: u64) -> (BilledTokens, Option<BilledTokens>) {
    let (real, reported) = match usage {
        UsageReport::Reported(tokens) => (tokens, Some(tokens)),
        UsageReport::Unreported(tokens) => (tokens, None),
        UsageReport::Misreported { real, reported } => (real, Some(reported)),
        UsageReport::Counted => {
            let tokens = BilledTokens { input: call.prompt_tokens, output, ..BilledTokens::default() };
            (tokens, Some(tokens))
        }
    };
    (real, reported.filter(|_| call.reports_usage))
}

fn model_answer(
    call: &FakeModelCall,
    number: usize,
    content: FakeModelContent,
    stop: FakeStopReason,
    usage: Option<BilledTokens>,
) -> FakeModelAnswer {
    FakeModelAnswer { number, model: call.model.clone(), content, stop, usage }
}

fn model_reply(
    call: &FakeModelCall,
    answer: &FakeModelAnswer,
    billed: BilledTokens,
    manner: ReplyDelivery,
) -> FakeModelReply {
    let ReplyDelivery { before, between, cut, fail } = manner;
    let (content_type, body) = if call.stream == StreamFormat::No {
        if let Some((_, kind, message)) = fail {
            let played = json_reply(500, &call.wire.error(500, &kind, &message));
            return FakeModelReply { before, billed: Some(billed), ..played };
        }
        let bytes = Bytes::from(call.wire.complete_body(answer).to_string());
        let length = bytes.len();
        let (sent, ending) = match cut {
            Some(_) => (bytes.slice(..length / 2), ReplyBodyEnd::Cut),
            None => (bytes, ReplyBodyEnd::Complete),
        };
        (JSON, ReplyBody::new(vec![sent], between, ending, Some(length as u64)))
    } else {
        let mut events = call.wire.events(answer, call.stream);
        if let Some((after, kind, message)) = fail {
            events.truncate(after);
            events.push(call.wire.stream_error(&kind, &message));
        }
        let ending = match cut {
            Some(after) => {
                events.truncate(after);
                ReplyBodyEnd::Cut
            }
            None => ReplyBodyEnd::Complete,
        };
        let content_type = if call.stream == StreamFormat::Array { JSON } else { SSE };
        let pieces = events.into_iter().map(Bytes::from).collect();
        (content_type, ReplyBody::new(pieces, between, ending, None))
    };
    let content_type = content_type.to_owned();
    FakeModelReply { status: 200, content_type, headers: Vec::new(), before, body, billed: Some(billed) }
}

fn malformed_reply(call: &FakeModelCall, before: Duration) -> FakeModelReply {
    let broken = json!({"type": "message_start", "choices": []}).to_string().replace('}', "");
    let billed = Some(BilledTokens { input: call.prompt_tokens, ..BilledTokens::default() });
    let (content_type, body) = match call.stream {
        StreamFormat::No | StreamFormat::Array => (JSON, broken),
        StreamFormat::Events => (SSE, format!("data: {broken}\n\n")),
    };
    FakeModelReply { billed, ..plain_reply(200, content_type, body.into(), before) }
}
