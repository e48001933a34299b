//! One turn as an answer: decided here, without a socket.

use std::time::Duration;

use bytes::Bytes;
use serde_json::{Value, json};

use super::body::{Ending, Pieces};
use super::script::{Tokens, Turn, Usage};
use super::tally;
use super::wire::{Answer, Call, Content, Stop, Stream};

/// What is sent, and what goes on the bill.
#[derive(Debug)]
pub(super) struct Played {
    pub(super) status: u16,
    pub(super) content_type: String,
    pub(super) headers: Vec<(String, String)>,
    /// How long nothing happens.
    pub(super) before: Duration,
    pub(super) body: Pieces,
    pub(super) billed: Option<Tokens>,
}

/// What the turns around the last one ask for.
#[derive(Debug, Default)]
struct Manner {
    before: Duration,
    between: Duration,
    cut: Option<usize>,
    fail: Option<(usize, String, String)>,
}

/// Plays a turn. `seen` is the text of the request's headers, for a turn that repeats them.
pub(super) fn play(turn: &Turn, call: &Call, number: usize, seen: &str) -> Played {
    let mut manner = Manner::default();
    let mut turn = turn;
    loop {
        turn = match turn {
            Turn::Slow { before, between, then } => {
                (manner.before, manner.between) = (*before, *between);
                then
            }
            Turn::Cut { after_events, then } => {
                manner.cut = Some(*after_events);
                then
            }
            Turn::Fail { after_events, kind, message, then } => {
                manner.fail = Some((*after_events, kind.clone(), message.clone()));
                then
            }
            _ => break,
        };
    }
    match turn {
        Turn::Text { text, usage } => text_turn(call, number, text, *usage, manner),
        Turn::Echo => text_turn(call, number, seen, Usage::Counted, manner),
        Turn::Tool { name, input, usage } => {
            let counted = tally::of_bytes(input.to_string().len());
            let (billed, told) = tokens(*usage, call, counted);
            let content = Content::Tool { name: name.clone(), input: input.clone() };
            send(call, &answer(call, number, content, Stop::Tool, told), billed, manner)
        }
        Turn::Error { status, kind, message, headers } => {
            let body = call.wire.error(*status, kind, message);
            let played = plain(*status, JSON, body.to_string().into(), manner.before);
            Played { headers: headers.clone(), ..played }
        }
        Turn::Malformed => malformed(call, manner.before),
        Turn::Html => plain(502, "text/html; charset=utf-8", PAGE.into(), manner.before),
        Turn::Raw { status, content_type, body } => plain(*status, content_type, body.clone(), manner.before),
        Turn::Slow { .. } | Turn::Cut { .. } | Turn::Fail { .. } => {
            unreachable!("the loop above ends at a turn that is none of these")
        }
    }
}

const JSON: &str = "application/json";
const SSE: &str = "text/event-stream; charset=utf-8";
const PAGE: &str = "<!DOCTYPE html><html><head><title>502 Bad Gateway</title></head><body>gateway</body></html>";

/// An answer that is no model's.
pub(super) fn plain(status: u16, content_type: &str, body: Vec<u8>, before: Duration) -> Played {
    Played {
        status,
        content_type: content_type.to_owned(),
        headers: Vec::new(),
        before,
        body: Pieces::whole(body),
        billed: None,
    }
}

/// An object that is no model's.
pub(super) fn object(status: u16, value: &Value) -> Played {
    plain(status, JSON, value.to_string().into(), Duration::ZERO)
}

fn text_turn(call: &Call, number: usize, text: &str, usage: Usage, manner: Manner) -> Played {
    let (shown, counted) = match usage {
        Usage::Counted => tally::words(text, call.most_tokens),
        Usage::Said(_) | Usage::Untold(_) | Usage::Misreported { .. } => (text, 0),
    };
    let stop = if shown.len() < text.len() { Stop::Length } else { Stop::End };
    let (billed, told) = tokens(usage, call, counted);
    send(call, &answer(call, number, Content::Text(shown.to_owned()), stop, told), billed, manner)
}

/// Returns what is billed and what is told.
fn tokens(usage: Usage, call: &Call, output: u64) -> (Tokens, Option<Tokens>) {
    let (real, told) = match usage {
        Usage::Said(tokens) => (tokens, Some(tokens)),
        Usage::Untold(tokens) => (tokens, None),
        Usage::Misreported { real, told } => (real, Some(told)),
        Usage::Counted => {
            let tokens = Tokens { input: call.prompt_tokens, output, ..Tokens::default() };
            (tokens, Some(tokens))
        }
    };
    (real, told.filter(|_| call.tells_usage))
}

fn answer(call: &Call, number: usize, content: Content, stop: Stop, usage: Option<Tokens>) -> Answer {
    Answer { number, model: call.model.clone(), content, stop, usage }
}

fn send(call: &Call, answer: &Answer, billed: Tokens, manner: Manner) -> Played {
    let Manner { before, between, cut, fail } = manner;
    let (content_type, body) = if call.stream == Stream::No {
        if let Some((_, kind, message)) = fail {
            let played = object(500, &call.wire.error(500, &kind, &message));
            return Played { before, billed: Some(billed), ..played };
        }
        let bytes = Bytes::from(call.wire.whole(answer).to_string());
        let length = bytes.len();
        let (sent, ending) = match cut {
            Some(_) => (bytes.slice(..length / 2), Ending::Cut),
            None => (bytes, Ending::Whole),
        };
        (JSON, Pieces::new(vec![sent], between, ending, Some(length as u64)))
    } else {
        let mut events = call.wire.events(answer, call.stream);
        if let Some((after, kind, message)) = fail {
            events.truncate(after);
            events.push(call.wire.failure(&kind, &message));
        }
        let ending = match cut {
            Some(after) => {
                events.truncate(after);
                Ending::Cut
            }
            None => Ending::Whole,
        };
        let content_type = if call.stream == Stream::Array { JSON } else { SSE };
        let pieces = events.into_iter().map(Bytes::from).collect();
        (content_type, Pieces::new(pieces, between, ending, None))
    };
    let content_type = content_type.to_owned();
    Played { status: 200, content_type, headers: Vec::new(), before, body, billed: Some(billed) }
}

fn malformed(call: &Call, before: Duration) -> Played {
    let broken = json!({"type": "message_start", "choices": []}).to_string().replace('}', "");
    let billed = Some(Tokens { input: call.prompt_tokens, ..Tokens::default() });
    let (content_type, body) = match call.stream {
        Stream::No | Stream::Array => (JSON, broken),
        Stream::Events => (SSE, format!("data: {broken}\n\n")),
    };
    Played { billed, ..plain(200, content_type, body.into(), before) }
}
