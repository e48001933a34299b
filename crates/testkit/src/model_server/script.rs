//! Defines what the server answers: turns in order, the last one repeated.

use std::time::Duration;

use serde_json::Value;

/// The turns of a conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct FakeModelScript {
    pub turns: Vec<ScriptedTurn>,
    pub(super) consumed_by: TurnConsumer,
}

/// Which calls get the next turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TurnConsumer {
    /// Those that offer tools: an agent's titles and probes have none, and must not disturb the order.
    ToolCalls,
    AllCalls,
}

impl FakeModelScript {
    /// Creates a script for the calls that offer tools; every other call is answered with a short text.
    pub fn new(turns: impl IntoIterator<Item = ScriptedTurn>) -> Self {
        Self { turns: turns.into_iter().collect(), consumed_by: TurnConsumer::ToolCalls }
    }

    /// Creates a script for all calls.
    pub fn for_all_calls(turns: impl IntoIterator<Item = ScriptedTurn>) -> Self {
        Self { consumed_by: TurnConsumer::AllCalls, ..Self::new(turns) }
    }
}

/// How one call is answered.
#[derive(Debug, Clone, PartialEq)]
pub enum ScriptedTurn {
    Text {
        text: String,
        usage: UsageReport,
    },
    Tool {
        name: String,
        input: Value,
        usage: UsageReport,
    },
    /// An error in the format of the requested wire; `kind` is what that wire calls a type, a code or a status.
    Error {
        status: u16,
        kind: String,
        message: String,
        headers: Vec<(String, String)>,
    },
    /// Waits before the first byte, and before each further event.
    Slow {
        before: Duration,
        between: Duration,
        then: Box<ScriptedTurn>,
    },
    /// Sends this many events, or half of an answer that is not streamed, and closes the connection.
    Cut {
        after_events: usize,
        then: Box<ScriptedTurn>,
    },
    /// Sends this many events with a success status, then an error as an event. Not streamed, only the error.
    Fail {
        after_events: usize,
        kind: String,
        message: String,
        then: Box<ScriptedTurn>,
    },
    /// A success status with JSON that is cut off.
    Malformed,
    /// The web page of a gateway.
    Html,
    Raw {
        status: u16,
        content_type: String,
        body: Vec<u8>,
    },
    /// The headers of the request as text, to test what a client can make a server repeat.
    Echo,
}

impl ScriptedTurn {
    /// Returns a text whose tokens are counted.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into(), usage: UsageReport::Counted }
    }

    /// Returns a tool call whose tokens are counted.
    pub fn tool(name: impl Into<String>, input: Value) -> Self {
        Self::Tool { name: name.into(), input, usage: UsageReport::Counted }
    }

    /// Returns an error without further headers.
    pub fn error(status: u16, kind: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Error { status, kind: kind.into(), message: message.into(), headers: Vec::new() }
    }

    /// Returns a text that looks like the end of a stream on every wire, with next to no tokens used. Only the usage
    /// that the server itself reports is true.
    pub fn fake_stream_end(usage: UsageReport) -> Self {
        Self::Text { text: FAKE_STREAM_END.to_owned(), usage }
    }

    #[must_use]
    pub fn slow(self, before: Duration, between: Duration) -> Self {
        Self::Slow { before, between, then: Box::new(self) }
    }

    #[must_use]
    pub fn cut(self, after_events: usize) -> Self {
        Self::Cut { after_events, then: Box::new(self) }
    }
}

/// Without a space, so that it is sent as one piece.
const FAKE_STREAM_END: &str = concat!(
    "\n\nevent:message_delta\ndata:{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},",
    "\"usage\":{\"input_tokens\":0,\"output_tokens\":0}}\n\nevent:message_stop\ndata:{\"type\":\"message_stop\"}\n\n",
    "data:{\"choices\":[],\"usage\":{\"prompt_tokens\":0,\"completion_tokens\":0,\"total_tokens\":0}}\n\n",
    "event:response.completed\ndata:{\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":0,",
    "\"output_tokens\":0}}}\n\ndata:{\"usageMetadata\":{\"promptTokenCount\":0,\"candidatesTokenCount\":0}}\r\n\r\n",
    "data:[DONE]\n\n"
);

/// Where the tokens of an answer come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsageReport {
    /// As the script says, regardless of the request.
    Reported(BilledTokens),
    /// Counted from the bytes that were transferred: a token is four bytes of the prompt's text, a word of the
    /// answer's text or four bytes of a tool's input. The answer ends at the caller's own token limit.
    Counted,
    /// Billed as the script says and not reported.
    Unreported(BilledTokens),
    /// Billed as the first says, reported as the second.
    Misreported { real: BilledTokens, reported: BilledTokens },
}

/// Tokens by their classes, each counted once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BilledTokens {
    /// Prompt tokens, neither read from a cache nor written to one.
    pub input: u64,
    pub cached: u64,
    /// Written to the cache for minutes.
    pub cache_write: u64,
    /// Written to the cache for an hour.
    pub cache_write_long: u64,
    /// Everything generated, reasoning too.
    pub output: u64,
    /// The part of `output` that was reasoning.
    pub reasoning: u64,
}

impl BilledTokens {
    /// Returns the tokens of the whole prompt.
    pub fn prompt(&self) -> u64 {
        self.input + self.cached + self.cache_write + self.cache_write_long
    }
}
