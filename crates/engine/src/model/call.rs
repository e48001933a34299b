//! Defines one model call: request, reply, and the trait between a run and its model.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use ralph_core::price::TokenUsage;
use serde::{Deserialize, Serialize};

use super::Error;
use crate::audit::EngineCallTarget;

/// One request to a model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelRequest {
    /// The system prompt; left out of the call when empty.
    pub system: String,
    pub user: String,
    /// The turns after `user`: the bad answer and the follow-up that names its error.
    pub history: Vec<ConversationTurn>,
    pub max_output_tokens: u32,
    pub temperature: Option<f64>,
    /// Requests a JSON object, where the provider can promise one.
    pub json: bool,
    /// Whether a call that may have been charged without an answer is retried under the same reservation.
    pub on_lost: LostCallPolicy,
    /// The longest the whole call may take, from connecting to the last byte.
    pub timeout: Duration,
    /// Further fields of the request body, from the profile.
    pub extra: serde_json::Map<String, serde_json::Value>,
}

/// What happens to a call whose answer was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LostCallPolicy {
    /// Retried like any other error.
    Retry,
    /// Reported to the caller, who accounts for it before calling again.
    Report,
}

impl ModelRequest {
    /// Builds the smallest request: one text, nothing optional, a timeout of a minute.
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

    /// Returns every text that the model reads, in order.
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

/// One reply of a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelReply {
    /// The model's text; empty if there was none, which is a reply too (and was paid for).
    pub text: String,
    pub usage: TokenUsage,
    /// Whether `usage` is the provider's own plausible figure; otherwise it is the larger of the provider's figure, if
    /// any model could have used that much, and ralph's estimate.
    pub usage_reported: bool,
    /// The model as the provider names it.
    pub model: String,
    pub finish: ModelFinishReason,
    /// The size of the response body.
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
    /// The provider or the model refused to continue.
    Filtered,
    Other(String),
}

/// Identifies a call of a run. All of it can be read from the run's events, so a resumed run calls under the same key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CallKey {
    /// Counted from 1.
    pub iteration: u32,
    /// 0 for the iteration's first call, then one more for every follow-up.
    pub call: u32,
    /// The number of the diagnosis that makes the call, counted from 1; none for a call of the iteration itself.
    pub diagnosis: Option<u32>,
    /// How often this very call was tried before.
    pub attempt: u32,
}

impl CallKey {
    pub fn new(iteration: u32, call: u32) -> Self {
        Self { iteration, call, diagnosis: None, attempt: 0 }
    }

    /// Returns the key of a diagnosis call, after an iteration.
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
    /// Returns the model's display name: `provider/model`.
    fn name(&self) -> &str;

    /// Reports whether a call whose answer was lost may have cost money.
    fn is_remote(&self) -> bool;

    /// Returns the target and credential of a call, for the audit log; `None` if nothing leaves the host.
    fn audit_target(&self) -> Option<EngineCallTarget> {
        None
    }

    /// Calls the model once. Dropping the future ends the call; it never takes longer than the request's timeout.
    async fn call(&self, request: &ModelRequest, key: CallKey) -> Result<ModelReply, Error>;
}

/// Estimates the tokens of a call from the lengths of its texts: four bytes per token, rounded up, at least one.
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
