//! Reads usage from Anthropic's Messages: the counts of `message_start` and `message_delta`, field by field.

use ralph_core::price::TokenUsage;
use serde::Deserialize;

use super::super::tee::MeteredAnswer;
use super::{UsageFailure, UsageTokenCount, plausible_tokens, replace_if_some};

#[derive(Debug, Default)]
pub(crate) struct AnthropicUsageReader {
    /// The model has begun to answer.
    pub(super) begun: bool,
    counts: AnthropicUsageTotals,
    model: Option<String>,
    stop: Option<String>,
    failed: Option<String>,
    /// A count came after the beginning: that of `message_start` is made before there is an answer.
    counted: bool,
    ended: bool,
}

/// The last reported count of each class.
#[derive(Debug, Default)]
struct AnthropicUsageTotals {
    input: Option<u64>,
    cached: Option<u64>,
    written: Option<u64>,
    short: Option<u64>,
    long: Option<u64>,
    output: Option<u64>,
}

#[derive(Debug, Deserialize)]
struct AnthropicUsageEvent {
    #[serde(rename = "type")]
    kind: String,
    message: Option<AnthropicUsageMessage>,
    delta: Option<AnthropicUsageDelta>,
    usage: Option<AnthropicUsageCounts>,
    error: Option<UsageFailure>,
}

#[derive(Debug, Deserialize)]
struct AnthropicUsageMessage {
    model: Option<String>,
    stop_reason: Option<String>,
    usage: Option<AnthropicUsageCounts>,
}

#[derive(Debug, Deserialize)]
struct AnthropicUsageDelta {
    stop_reason: Option<String>,
}

#[derive(Debug, Deserialize)]
struct AnthropicUsageCounts {
    input_tokens: Option<UsageTokenCount>,
    cache_read_input_tokens: Option<UsageTokenCount>,
    cache_creation_input_tokens: Option<UsageTokenCount>,
    cache_creation: Option<AnthropicCacheWrites>,
    output_tokens: Option<UsageTokenCount>,
}

#[derive(Debug, Deserialize)]
struct AnthropicCacheWrites {
    ephemeral_5m_input_tokens: Option<UsageTokenCount>,
    ephemeral_1h_input_tokens: Option<UsageTokenCount>,
}

#[derive(Debug, Deserialize)]
struct AnthropicUsageBody {
    model: Option<String>,
    stop_reason: Option<String>,
    usage: Option<AnthropicUsageCounts>,
    error: Option<UsageFailure>,
}

impl AnthropicUsageReader {
    pub(super) fn event(&mut self, data: &[u8]) {
        let Ok(event) = serde_json::from_slice::<AnthropicUsageEvent>(data) else { return };
        match event.kind.as_str() {
            "message_start" => {
                if let Some(message) = event.message {
                    replace_if_some(&mut self.model, message.model);
                    replace_if_some(&mut self.stop, message.stop_reason);
                    self.counts.update(message.usage);
                }
            }
            "message_delta" => {
                replace_if_some(&mut self.stop, event.delta.and_then(|delta| delta.stop_reason));
                self.counted |=
                    event.usage.as_ref().is_some_and(|counts| plausible_tokens(counts.output_tokens).is_some());
                self.counts.update(event.usage);
            }
            "message_stop" => self.ended = true,
            kind if kind.starts_with("content_block") => self.begun = true,
            "error" => self.failed = Some(event.error.unwrap_or(UsageFailure::Text("error".to_owned())).message()),
            _ => (),
        }
    }

    pub(super) fn body(&mut self, body: &[u8]) {
        let Ok(body) = serde_json::from_slice::<AnthropicUsageBody>(body) else { return };
        replace_if_some(&mut self.model, body.model);
        replace_if_some(&mut self.stop, body.stop_reason);
        self.failed = body.error.map(UsageFailure::message);
        self.counted = body.usage.as_ref().is_some_and(|counts| plausible_tokens(counts.output_tokens).is_some());
        self.ended = true;
        self.begun = self.failed.is_none();
        self.counts.update(body.usage);
    }

    pub(super) fn snapshot(&self) -> MeteredAnswer {
        let usage = self.counts.usage();
        MeteredAnswer {
            complete: self.ended && self.failed.is_none() && self.counted,
            usage,
            model: self.model.clone(),
            stop: self.stop.clone(),
            failed: self.failed.clone(),
        }
    }
}

impl AnthropicUsageTotals {
    /// Updates the counts. They are cumulative, so the later one wins; but a missing count or a zero never erases an
    /// earlier one.
    fn update(&mut self, counts: Option<AnthropicUsageCounts>) {
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
            if let Some(new) = plausible_tokens(new).filter(|new| *new > 0 || known.is_none()) {
                *known = Some(new);
            }
        }
    }

    fn usage(&self) -> Option<TokenUsage> {
        if self.input.is_none() && self.output.is_none() {
            return None;
        }
        let long = self.long.unwrap_or(0);
        // The total and its parts should agree. If not, everything that was written to the cache is counted.
        let written = self.written.unwrap_or(0).max(self.short.unwrap_or(0).saturating_add(long));
        Some(TokenUsage {
            input: self.input.unwrap_or(0),
            cached_input: self.cached.unwrap_or(0),
            cache_write: written - long,
            cache_write_long: long,
            output: self.output.unwrap_or(0),
            reasoning: 0,
        })
    }
}
