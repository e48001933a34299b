//! What the providers' answers say about themselves: one file per wire.
//!
//! Only known fields at known places count. A text within an answer that looks like usage is a text.

mod anthropic;
mod chat;
mod gemini;
mod responses;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::endpoint::ModelCallKind;
use super::tee::MeteredAnswer;

/// No model reads or says as much in one call: a bigger number is a mistake, and the worst case of the call is charged.
const MAX_TOKENS: u64 = 4_000_000;
/// Words of a provider that end up in a log are cut here.
const MAX_ERROR_BYTES: usize = 500;

/// Collects what one answer says, in the words of its wire.
#[derive(Debug)]
pub(super) enum UsageReader {
    Anthropic(anthropic::AnthropicUsageReader),
    Chat(chat::ChatUsageReader),
    Responses(responses::ResponsesUsageReader),
    Gemini(gemini::GeminiUsageReader),
}

impl UsageReader {
    pub(super) fn new(call: &ModelCallKind) -> Self {
        match call {
            ModelCallKind::Messages => Self::Anthropic(anthropic::AnthropicUsageReader::default()),
            ModelCallKind::Chat => Self::Chat(chat::ChatUsageReader::default()),
            ModelCallKind::Responses => Self::Responses(responses::ResponsesUsageReader::default()),
            ModelCallKind::Gemini { .. } => Self::Gemini(gemini::GeminiUsageReader::default()),
        }
    }

    /// Reads one event of a stream, and tells whether it carries nothing but usage.
    pub(super) fn event(&mut self, data: &[u8]) -> bool {
        match self {
            Self::Anthropic(answer) => answer.event(data),
            Self::Chat(answer) => return answer.event(data),
            Self::Responses(answer) => answer.event(data),
            Self::Gemini(answer) => answer.event(data),
        }
        false
    }

    /// Reads a whole body.
    pub(super) fn body(&mut self, body: &[u8]) {
        match self {
            Self::Anthropic(answer) => answer.body(body),
            Self::Chat(answer) => answer.body(body),
            Self::Responses(answer) => answer.body(body),
            Self::Gemini(answer) => answer.body(body),
        }
    }

    /// Says whether the model has begun to answer.
    pub(super) fn has_begun(&self) -> bool {
        match self {
            Self::Anthropic(answer) => answer.begun,
            Self::Chat(answer) => answer.begun,
            Self::Responses(answer) => answer.begun,
            Self::Gemini(answer) => answer.begun,
        }
    }

    pub(super) fn snapshot(&self, ended: bool) -> MeteredAnswer {
        match self {
            Self::Anthropic(answer) => answer.snapshot(),
            Self::Chat(answer) => answer.snapshot(),
            Self::Responses(answer) => answer.snapshot(),
            Self::Gemini(answer) => answer.snapshot(ended),
        }
    }
}

/// A number of tokens, or something else that is not worth losing the rest for.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(untagged)]
enum UsageTokenCount {
    Tokens(u64),
    Other(IgnoredAny),
}

/// Returns a believable number of tokens.
fn plausible_tokens(count: Option<UsageTokenCount>) -> Option<u64> {
    match count? {
        UsageTokenCount::Tokens(tokens) => Some(tokens).filter(|tokens| *tokens <= MAX_TOKENS),
        UsageTokenCount::Other(_) => None,
    }
}

/// A failure in any provider's shape.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum UsageFailure {
    Said {
        #[serde(default)]
        message: Option<String>,
        #[serde(default, rename = "type")]
        kind: Option<UsageFailureName>,
        #[serde(default)]
        status: Option<UsageFailureName>,
        #[serde(default)]
        code: Option<UsageFailureName>,
    },
    Text(String),
    Other(IgnoredAny),
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum UsageFailureName {
    Text(String),
    Number(i64),
    Other(IgnoredAny),
}

impl UsageFailureName {
    fn text(self) -> Option<String> {
        match self {
            Self::Text(text) => Some(text),
            Self::Number(number) => Some(number.to_string()),
            Self::Other(_) => None,
        }
    }
}

impl UsageFailure {
    fn message(self) -> String {
        let words = match self {
            Self::Said { message, kind, status, code } => {
                let name = [kind, status, code].into_iter().flatten().find_map(UsageFailureName::text);
                match (name, message) {
                    (Some(name), Some(message)) => format!("{name}: {message}"),
                    (Some(only), None) | (None, Some(only)) => only,
                    (None, None) => "no reason given".to_owned(),
                }
            }
            Self::Text(text) => text,
            Self::Other(_) => "no reason given".to_owned(),
        };
        truncate(words)
    }
}

/// Cuts words that somebody else chose to a length for a log.
fn truncate(mut words: String) -> String {
    words.truncate(words.floor_char_boundary(MAX_ERROR_BYTES));
    words
}

/// Puts a later word over an earlier one.
fn replace_if_some(word: &mut Option<String>, new: Option<String>) {
    if let Some(new) = new {
        *word = Some(truncate(new));
    }
}
