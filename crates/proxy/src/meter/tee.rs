//! Reads the usage of an answer while it is passed on.

use bytes::{Bytes, BytesMut};
use ralph_core::price::TokenUsage;

use super::endpoint::ModelCallKind;
use super::sse::{SseParser, SseStep, SseTooLong};
use super::usage::UsageReader;

/// Longer lines are passed on, but no longer read.
const MAX_LINE: usize = 8 << 20;
/// Longer bodies are passed on, but not read.
const MAX_BODY: usize = 16 << 20;

/// What was read from an answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MeteredAnswer {
    pub usage: Option<TokenUsage>,
    /// The answer ended properly with final usage. Otherwise `usage` may be too small.
    pub complete: bool,
    /// The model that says it answered.
    pub model: Option<String>,
    /// Why the model stopped, as the provider names it.
    pub stop: Option<String>,
    /// The provider's error text, if it reported a failure.
    pub failed: Option<String>,
}

/// Reads usage from an answer that is passed on, without delaying or changing a byte, except that it drops the usage
/// chunk that a client did not ask for.
#[derive(Debug)]
pub struct UsageTee {
    reader: UsageReader,
    reading: TeeState,
    /// The stream carries a usage chunk that is not for the client: events are passed on whole.
    hold: bool,
    held: BytesMut,
    /// What is held so far can be passed on without knowing the rest of the event.
    only_comments: bool,
    /// The last event was dropped, and so is the rest of its line end.
    cut: bool,
    most_line: usize,
    most_body: usize,
    ended: bool,
}

#[derive(Debug)]
enum TeeState {
    /// Only white space so far, and no content type that says what it is.
    Unknown,
    Events(SseParser),
    /// The body so far; one that comes in one piece is not copied.
    Json(TeeBody),
    Stopped {
        /// Something was not read, so no usage is known to be final.
        short: bool,
    },
}

/// A body that comes in pieces, mostly in one.
#[derive(Debug, Default)]
struct TeeBody {
    first: Bytes,
    /// All pieces, as soon as there is more than one.
    all: Vec<u8>,
}

impl TeeBody {
    fn bytes(&self) -> &[u8] {
        if self.all.is_empty() { &self.first } else { &self.all }
    }

    fn len(&self) -> usize {
        self.bytes().len()
    }

    fn push(&mut self, piece: Bytes) {
        if self.first.is_empty() {
            self.first = piece;
            return;
        }
        if self.all.is_empty() {
            self.all.extend_from_slice(&self.first);
        }
        self.all.extend_from_slice(&piece);
    }
}

impl UsageTee {
    /// Starts reading an answer. `usage_added` comes from the [`RewrittenRequest`](super::RewrittenRequest).
    ///
    /// A content type of events is trusted; otherwise the first byte decides, because gateways mislabel.
    pub fn new(call: &ModelCallKind, content_type: Option<&str>, usage_added: bool) -> Self {
        Self::with_limits(call, content_type, usage_added, MAX_LINE, MAX_BODY)
    }

    pub(super) fn with_limits(
        call: &ModelCallKind,
        content_type: Option<&str>,
        usage_added: bool,
        most_line: usize,
        most_body: usize,
    ) -> Self {
        let kind = content_type.and_then(|value| value.split(';').next()).unwrap_or_default().trim();
        let events = kind.eq_ignore_ascii_case("text/event-stream");
        Self {
            reader: UsageReader::new(call),
            reading: if events { TeeState::Events(SseParser::new(most_line)) } else { TeeState::Unknown },
            hold: usage_added,
            held: BytesMut::new(),
            only_comments: true,
            cut: false,
            most_line,
            most_body,
            ended: false,
        }
    }

    /// Takes a piece of the body and returns what to pass on: the very same bytes unless a usage chunk must be
    /// dropped.
    pub fn pass(&mut self, piece: Bytes) -> Bytes {
        let mut start = 0;
        if matches!(self.reading, TeeState::Unknown) {
            let Some(at) = piece.iter().position(|byte| !byte.is_ascii_whitespace()) else { return piece };
            start = at;
            let json = matches!(piece.get(at), Some(b'{' | b'['));
            self.reading = if json {
                TeeState::Json(TeeBody::default())
            } else {
                TeeState::Events(SseParser::new(self.most_line))
            };
        }
        match &mut self.reading {
            TeeState::Unknown | TeeState::Stopped { .. } => piece,
            TeeState::Json(body) => {
                let bytes = piece.slice(start..);
                if body.len().saturating_add(bytes.len()) > self.most_body {
                    self.reading = TeeState::Stopped { short: true };
                } else {
                    body.push(bytes);
                }
                piece
            }
            TeeState::Events(_) if self.hold => {
                let mut out = BytesMut::from(piece.get(..start).unwrap_or_default());
                self.hold_events(piece.get(start..).unwrap_or_default(), &mut out);
                out.freeze()
            }
            TeeState::Events(sse) => {
                if read_events(sse, &mut self.reader, piece.get(start..).unwrap_or_default()).is_err() {
                    self.reading = TeeState::Stopped { short: true };
                }
                piece
            }
        }
    }

    /// Ends the body, and returns what was still held back, if anything.
    pub fn finish(&mut self) -> Bytes {
        self.ended = true;
        let mut short = false;
        let mut dropped = false;
        match std::mem::replace(&mut self.reading, TeeState::Stopped { short: false }) {
            TeeState::Unknown => (),
            TeeState::Json(body) => self.reader.body(body.bytes()),
            TeeState::Stopped { short: before } => short = before,
            TeeState::Events(mut sse) => match sse.finish() {
                Ok(Some(data)) => dropped = self.reader.event(&data) && self.hold,
                Ok(None) => (),
                Err(SseTooLong) => short = true,
            },
        }
        self.reading = TeeState::Stopped { short };
        let held = self.held.split().freeze();
        if dropped { Bytes::new() } else { held }
    }

    /// Returns what is known so far. A body that is not a stream of events is only parsed at its end.
    pub fn snapshot(&self) -> MeteredAnswer {
        let seen = self.reader.snapshot(self.ended);
        let short = matches!(self.reading, TeeState::Stopped { short: true });
        MeteredAnswer { complete: seen.complete && !short, ..seen }
    }

    /// Says whether the model has begun to answer: a failure before that costs nothing beyond what was counted.
    pub fn has_begun(&self) -> bool {
        self.reader.has_begun()
    }

    /// Passes events on one by one, without those that only carry the usage that the proxy asked for.
    fn hold_events(&mut self, bytes: &[u8], out: &mut BytesMut) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let step = match &mut self.reading {
                TeeState::Events(sse) if self.held.len() <= self.most_line.saturating_mul(2) => sse.step(rest),
                _ => Err(SseTooLong),
            };
            let Ok((taken, step)) = step else {
                self.reading = TeeState::Stopped { short: true };
                out.unsplit(self.held.split());
                out.extend_from_slice(rest);
                return;
            };
            let (bytes, left) = rest.split_at(taken);
            rest = left;
            match step {
                SseStep::Tail if self.held.is_empty() => {
                    if !self.cut {
                        out.extend_from_slice(bytes);
                    }
                }
                SseStep::Tail | SseStep::Part => self.held.extend_from_slice(bytes),
                SseStep::Field => {
                    self.held.extend_from_slice(bytes);
                    self.only_comments = false;
                }
                SseStep::Comment => {
                    self.held.extend_from_slice(bytes);
                    if self.only_comments {
                        self.release(out);
                    }
                }
                SseStep::Nothing => {
                    self.held.extend_from_slice(bytes);
                    self.release(out);
                }
                SseStep::Event(data) => {
                    self.held.extend_from_slice(bytes);
                    if self.reader.event(&data) {
                        self.held.clear();
                        self.cut = true;
                        self.only_comments = true;
                    } else {
                        self.release(out);
                    }
                }
            }
        }
    }

    fn release(&mut self, out: &mut BytesMut) {
        out.extend_from_slice(&self.held);
        self.held.clear();
        self.cut = false;
        self.only_comments = true;
    }
}

fn read_events(sse: &mut SseParser, reader: &mut UsageReader, bytes: &[u8]) -> Result<(), SseTooLong> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let (taken, step) = sse.step(rest)?;
        rest = rest.get(taken..).unwrap_or_default();
        if let SseStep::Event(data) = step {
            reader.event(&data);
        }
    }
    Ok(())
}
