//! Reads the token usage that providers report in their answers: one file per API.
//!
//! Only known fields at known places count. Text within an answer that looks like usage is just text.

mod anthropic;
mod chat;
mod gemini;
mod responses;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::endpoint::ModelCallKind;
use super::tee::MeteredAnswer;

/// No model reads or writes as much in one call: a bigger number is a mistake, and the call is charged at its worst
/// case.
const MAX_TOKENS: u64 = 4_000_000;
/// Longer texts of a provider are truncated for the log.
const MAX_ERROR_BYTES: usize = 500;

/// Collects what one answer reports, in the format of its API.
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

    /// Reads one event of a stream, and says whether it carries nothing but usage.
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

/// A number of tokens, or another value, which must not make the rest unreadable.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(untagged)]
enum UsageTokenCount {
    Tokens(u64),
    Other(IgnoredAny),
}

/// Returns the number of tokens if it is plausible.
fn plausible_tokens(count: Option<UsageTokenCount>) -> Option<u64> {
    match count? {
        UsageTokenCount::Tokens(tokens) => Some(tokens).filter(|tokens| *tokens <= MAX_TOKENS),
        UsageTokenCount::Other(_) => None,
    }
}

/// An error in any provider's format.
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

/// Truncates a text from outside for the log.
fn truncate(mut words: String) -> String {
    words.truncate(words.floor_char_boundary(MAX_ERROR_BYTES));
    words
}

/// Replaces an earlier value by a later one, if there is one.
fn replace_if_some(word: &mut Option<String>, new: Option<String>) {
    if let Some(new) = new {
        *word = Some(truncate(new));
    }
}
