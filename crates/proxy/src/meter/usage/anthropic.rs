//! Anthropic's Messages: the counts of `message_start` and `message_delta`, field by field.

use ralph_core::price::Usage;
use serde::Deserialize;

use super::super::tee::Seen;
use super::{Count, Failure, later, tokens};

#[derive(Debug, Default)]
pub(crate) struct Answer {
    /// Words of the model have come.
    pub(super) begun: bool,
    counts: Known,
    model: Option<String>,
    stop: Option<String>,
    failed: Option<String>,
    /// A count came after the beginning: that of `message_start` is made before there is an answer.
    counted: bool,
    ended: bool,
}

/// The last that was said of each class.
#[derive(Debug, Default)]
struct Known {
    input: Option<u64>,
    cached: Option<u64>,
    written: Option<u64>,
    short: Option<u64>,
    long: Option<u64>,
    output: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    message: Option<Message>,
    delta: Option<Delta>,
    usage: Option<Counts>,
    error: Option<Failure>,
}

#[derive(Debug, Deserialize)]
struct Message {
    model: Option<String>,
    stop_reason: Option<String>,
    usage: Option<Counts>,
}

#[derive(Debug, Deserialize)]
struct Delta {
    stop_reason: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Counts {
    input_tokens: Option<Count>,
    cache_read_input_tokens: Option<Count>,
    cache_creation_input_tokens: Option<Count>,
    cache_creation: Option<Written>,
    output_tokens: Option<Count>,
}

#[derive(Debug, Deserialize)]
struct Written {
    ephemeral_5m_input_tokens: Option<Count>,
    ephemeral_1h_input_tokens: Option<Count>,
}

#[derive(Debug, Deserialize)]
struct Body {
    model: Option<String>,
    stop_reason: Option<String>,
    usage: Option<Counts>,
    error: Option<Failure>,
}

impl Answer {
    pub(super) fn event(&mut self, data: &[u8]) {
        let Ok(event) = serde_json::from_slice::<Event>(data) else { return };
        match event.kind.as_str() {
            "message_start" => {
                if let Some(message) = event.message {
                    later(&mut self.model, message.model);
                    later(&mut self.stop, message.stop_reason);
                    self.counts.learn(message.usage);
                }
            }
            "message_delta" => {
                later(&mut self.stop, event.delta.and_then(|delta| delta.stop_reason));
                self.counted |= event.usage.as_ref().is_some_and(|counts| tokens(counts.output_tokens).is_some());
                self.counts.learn(event.usage);
            }
            "message_stop" => self.ended = true,
            kind if kind.starts_with("content_block") => self.begun = true,
            "error" => self.failed = Some(event.error.unwrap_or(Failure::Text("error".to_owned())).words()),
            _ => (),
        }
    }

    pub(super) fn body(&mut self, body: &[u8]) {
        let Ok(body) = serde_json::from_slice::<Body>(body) else { return };
        later(&mut self.model, body.model);
        later(&mut self.stop, body.stop_reason);
        self.failed = body.error.map(Failure::words);
        self.counted = body.usage.as_ref().is_some_and(|counts| tokens(counts.output_tokens).is_some());
        self.ended = true;
        self.begun = self.failed.is_none();
        self.counts.learn(body.usage);
    }

    pub(super) fn seen(&self) -> Seen {
        let usage = self.counts.usage();
        Seen {
            complete: self.ended && self.failed.is_none() && self.counted,
            usage,
            model: self.model.clone(),
            stop: self.stop.clone(),
            failed: self.failed.clone(),
        }
    }
}

impl Known {
    /// Counts are cumulative, so the later one wins; but nothing, and a zero, never erase what was counted before.
    fn learn(&mut self, counts: Option<Counts>) {
        let Some(counts) = counts else { return };
        let written = counts.cache_creation;
        let (short, long) =
            written.map_or((None, None), |split| (split.ephemeral_5m_input_tokens, split.ephemeral_1h_input_tokens));
        for (known, new) in [
            (&mut self.input, counts.input_tokens),
            (&mut self.cached, counts.cache_read_input_tokens),
            (&mut self.written, counts.cache_creation_input_tokens),
            (&mut self.short, short),
            (&mut self.long, long),
            (&mut self.output, counts.output_tokens),
        ] {
            if let Some(new) = tokens(new).filter(|new| *new > 0 || known.is_none()) {
                *known = Some(new);
            }
        }
    }

    fn usage(&self) -> Option<Usage> {
        if self.input.is_none() && self.output.is_none() {
            return None;
        }
        let long = self.long.unwrap_or(0);
        // The total and its parts should agree. If not, nothing that was written goes uncounted.
        let written = self.written.unwrap_or(0).max(self.short.unwrap_or(0).saturating_add(long));
        Some(Usage {
            input: self.input.unwrap_or(0),
            cached_input: self.cached.unwrap_or(0),
            cache_write: written - long,
            cache_write_long: long,
            output: self.output.unwrap_or(0),
            reasoning: 0,
        })
    }
}
