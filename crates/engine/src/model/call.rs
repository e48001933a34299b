//! The words of one model call: what is asked, what comes back, and the seam between a run and its model.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use ralph_core::price::TokenUsage;
use serde::{Deserialize, Serialize};

use super::Error;
use crate::audit::EngineCallTarget;

/// One question to a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelRequest {
    /// The standing rules; left out of the call when empty.
    pub system: String,
    pub user: String,
    /// What was said after `user`: the bad answer and the re-ask that names its error.
    pub history: Vec<ConversationTurn>,
    pub max_output_tokens: u32,
    pub temperature: Option<f64>,
    /// Asks the provider for a JSON object, where it can promise one.
    pub json: bool,
    /// Whether a call that may have been charged without an answer is asked again under the same reservation.
    pub on_lost: LostCallPolicy,
    /// The longest the whole call may take, from dialling to the last byte.
    pub timeout: Duration,
    /// More fields of the request body, from the profile.
    pub extra: serde_json::Map<String, serde_json::Value>,
}

/// What happens to a call whose answer was lost on the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LostCallPolicy {
    /// Asked again like any other trouble.
    Retry,
    /// Told to the caller, who accounts for it before asking again.
    Report,
}

impl ModelRequest {
    /// Makes the smallest question: one text, nothing optional, a minute of patience.
    pub fn from_user_text(user: impl Into<String>) -> Self {
        Self {
            system: String::new(),
            user: user.into(),
            history: Vec::new(),
            max_output_tokens: 16,
            temperature: None,
            json: false,
            on_lost: LostCallPolicy::Retry,
            timeout: Duration::from_mins(1),
            extra: serde_json::Map::new(),
        }
    }

    /// Returns every text the model gets to read, in order.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        [self.system.as_str(), self.user.as_str()].into_iter().chain(self.history.iter().map(|turn| turn.text.as_str()))
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConversationTurn {
    pub role: ConversationRole,
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConversationRole {
    User,
    Assistant,
}

/// One answer of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelReply {
    /// What the model said; empty when it said nothing, which is an answer too (and was paid for).
    pub text: String,
    pub usage: TokenUsage,
    /// Whether `usage` is the provider's own figure and can be true; otherwise it is the larger of what it said, where any
    /// model could have used that, and our estimate.
    pub usage_reported: bool,
    /// The model as the provider names it.
    pub model: String,
    pub finish: ModelFinishReason,
    /// The size of the answer as it came over the wire.
    pub raw_bytes: u64,
}

/// Why the model stopped.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModelFinishReason {
    #[default]
    Stop,
    /// The output cap was reached: the text is cut.
    Length,
    /// The provider or the model refused to go on.
    Filtered,
    Other(String),
}

/// Which call of a run this is. All of it can be read back from the run's events, so a resumed run asks under the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CallKey {
    /// Counted from 1.
    pub iteration: u32,
    /// 0 for the iteration's first call, then one more for every re-ask.
    pub call: u32,
    /// Which diagnosis asks, counted from 1; none for a call of the iteration itself.
    pub diagnosis: Option<u32>,
    /// How often this very call was tried before.
    pub attempt: u32,
}

impl CallKey {
    pub fn new(iteration: u32, call: u32) -> Self {
        Self { iteration, call, diagnosis: None, attempt: 0 }
    }

    /// Returns the key of a doctor's call, after an iteration.
    pub fn of_diagnosis(diagnosis: u32, iteration: u32, call: u32) -> Self {
        Self { diagnosis: Some(diagnosis), ..Self::new(iteration, call) }
    }

    pub fn attempt(self, attempt: u32) -> Self {
        Self { attempt, ..self }
    }
}

impl fmt::Display for CallKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.diagnosis {
            None => write!(f, "iteration {}, call {}", self.iteration, self.call),
            Some(diagnosis) => write!(f, "diagnosis {diagnosis}, call {}", self.call),
        }
    }
}

/// Something that answers a [`ModelRequest`].
#[async_trait]
pub trait LanguageModel: fmt::Debug + Send + Sync {
    /// The name people know it by: `provider/model`.
    fn name(&self) -> &str;

    /// Whether a call whose answer was lost may have cost money all the same.
    fn is_remote(&self) -> bool;

    /// Where a call goes and what goes with it, for the record; `None` when nothing leaves.
    fn audit_target(&self) -> Option<EngineCallTarget> {
        None
    }

    /// Asks once. Dropping the future ends the call; it never takes longer than the request's timeout.
    async fn call(&self, request: &ModelRequest, key: CallKey) -> Result<ModelReply, Error>;
}

/// Guesses the tokens of a call from the lengths of its texts: four bytes a token, rounded up, never nothing.
pub fn estimate_usage(request: &ModelRequest, answer_bytes: usize) -> TokenUsage {
    let input: usize = request.texts().map(str::len).fold(0, usize::saturating_add);
    let tokens = |bytes: usize| u64::try_from(bytes.div_ceil(4)).unwrap_or(u64::MAX);
    TokenUsage { input: tokens(input).max(1), output: tokens(answer_bytes), ..TokenUsage::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn estimates() {
        let request = |system: &str, user: &str, history: &[&str]| ModelRequest {
            system: system.into(),
            user: user.into(),
            history: history
                .iter()
                .map(|text| ConversationTurn { role: ConversationRole::User, text: (*text).into() })
                .collect(),
            max_output_tokens: 1,
            temperature: None,
            json: false,
            on_lost: LostCallPolicy::Retry,
            timeout: Duration::ZERO,
            extra: serde_json::Map::new(),
        };
        for (request, answer, input, output) in [
            (request("", "", &[]), 0, 1, 0),
            (request("abcd", "abcde", &[]), 9, 3, 3),
            (request("", "abcd", &["abcd", "abcd"]), 4, 3, 1),
        ] {
            assert_eq!(estimate_usage(&request, answer), TokenUsage { input, output, ..TokenUsage::default() });
        }
    }
}
