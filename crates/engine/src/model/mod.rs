//! Calls a language model once and returns its reply, whatever the provider.
//!
//! `call` defines requests and replies. `remote` (with `endpoint_url` and `wire`) and `scripted_model` (with
//! `conversation_script`) are the two implementations. `error_class` (with `error_body` and `rate_limit_reset`)
//! classifies errors, `retry` decides what follows. Prompts, prices and budgets are not here.

mod call;
mod conversation_script;
mod endpoint_url;
mod error;
mod error_body;
mod error_class;
mod rate_limit_reset;
mod remote;
mod retry;
pub mod scripted_model;
mod wire;

pub use call::{
    CallKey, ConversationRole, ConversationTurn, LanguageModel, LostCallPolicy, ModelFinishReason, ModelReply,
    ModelRequest, estimate_usage,
};
pub use endpoint_url::KeyScheme;
pub(crate) use error::is_untrusted_certificate;
pub use error::{AnswerFlaw, Error};
pub use error_class::{ModelErrorClass, classify};
pub use remote::{RemoteEndpoint, RemoteModel, client};
pub use retry::{
    CallCancellation, MAX_CALLS, ModelCallFailure, RetryDecision, RetryPace, call_with_retry, max_attempts,
    pause_after, retry_decision,
};
