//! What the providers' answers say about themselves: one file per wire.
//!
//! Only known fields at known places count. A text within an answer that looks like usage is a text.

mod anthropic;
mod chat;
mod gemini;
mod responses;

use serde::Deserialize;
use serde::de::IgnoredAny;

use super::endpoint::Call;
use super::tee::Seen;

/// No model reads or says as much in one call: a bigger number is a mistake, and the worst case of the call is charged.
const MOST_TOKENS: u64 = 4_000_000;
/// Words of a provider that end up in a log are cut here.
const MOST_WORDS: usize = 500;

/// Collects what one answer says, in the words of its wire.
#[derive(Debug)]
pub(super) enum Reader {
    Anthropic(anthropic::Answer),
    Chat(chat::Answer),
    Responses(responses::Answer),
    Gemini(gemini::Answer),
}

impl Reader {
    pub(super) fn new(call: &Call) -> Self {
        match call {
            Call::Messages => Self::Anthropic(anthropic::Answer::default()),
            Call::Chat => Self::Chat(chat::Answer::default()),
            Call::Responses => Self::Responses(responses::Answer::default()),
            Call::Gemini { .. } => Self::Gemini(gemini::Answer::default()),
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
    pub(super) fn begun(&self) -> bool {
        match self {
            Self::Anthropic(answer) => answer.begun,
            Self::Chat(answer) => answer.begun,
            Self::Responses(answer) => answer.begun,
            Self::Gemini(answer) => answer.begun,
        }
    }

    pub(super) fn seen(&self, ended: bool) -> Seen {
        match self {
            Self::Anthropic(answer) => answer.seen(),
            Self::Chat(answer) => answer.seen(),
            Self::Responses(answer) => answer.seen(),
            Self::Gemini(answer) => answer.seen(ended),
        }
    }
}

/// A number of tokens, or something else that is not worth losing the rest for.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(untagged)]
enum Count {
    Tokens(u64),
    Other(IgnoredAny),
}

/// Returns a believable number of tokens.
fn tokens(count: Option<Count>) -> Option<u64> {
    match count? {
        Count::Tokens(tokens) => Some(tokens).filter(|tokens| *tokens <= MOST_TOKENS),
        Count::Other(_) => None,
    }
}

/// A failure in any provider's shape.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Failure {
    Said {
        #[serde(default)]
        message: Option<String>,
        #[serde(default, rename = "type")]
        kind: Option<Name>,
        #[serde(default)]
        status: Option<Name>,
        #[serde(default)]
        code: Option<Name>,
    },
    Text(String),
    Other(IgnoredAny),
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Name {
    Text(String),
    Number(i64),
    Other(IgnoredAny),
}

impl Name {
    fn text(self) -> Option<String> {
        match self {
            Self::Text(text) => Some(text),
            Self::Number(number) => Some(number.to_string()),
            Self::Other(_) => None,
        }
    }
}

impl Failure {
    fn words(self) -> String {
        let words = match self {
            Self::Said { message, kind, status, code } => {
                let name = [kind, status, code].into_iter().flatten().find_map(Name::text);
                match (name, message) {
                    (Some(name), Some(message)) => format!("{name}: {message}"),
                    (Some(only), None) | (None, Some(only)) => only,
                    (None, None) => "no reason given".to_owned(),
                }
            }
            Self::Text(text) => text,
            Self::Other(_) => "no reason given".to_owned(),
        };
        short(words)
    }
}

/// Cuts words that somebody else chose to a length for a log.
fn short(mut words: String) -> String {
    words.truncate(words.floor_char_boundary(MOST_WORDS));
    words
}

/// Puts a later word over an earlier one.
fn later(word: &mut Option<String>, new: Option<String>) {
    if let Some(new) = new {
        *word = Some(short(new));
    }
}
