//! Defines the errors of a model call, with hints for the user.
//!
//! No error contains a key: it is removed from a server's text before that becomes part of an error.

use std::time::Duration;
use std::{error, fmt, io};

use ralph_proxy::meter;

use super::{CallKey, ModelErrorClass};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The provider answered with an error of its own.
    #[error("`{model}` answered {status}: {said}")]
    Status {
        model: String,
        status: u16,
        class: ModelErrorClass,
        said: String,
        /// The error itself reports a cost.
        billed: bool,
    },
    #[error("`{model}` did not answer within {after:?}")]
    Timeout { model: String, after: Duration },
    #[error("could not connect to `{host}` for `{model}`")]
    Connect { model: String, host: String, source: reqwest::Error },
    /// The server showed a certificate that is not trusted here.
    #[error("the certificate of `{host}` is not trusted, so `{model}` was not asked")]
    Untrusted { model: String, host: String, source: reqwest::Error },
    /// The request was sent, then the connection ended before an answer began.
    #[error("the connection to `{host}` broke before `{model}` answered")]
    Lost { model: String, host: String, source: reqwest::Error },
    /// The answer began and was cut.
    #[error("the answer of `{model}` was cut after {bytes} bytes")]
    Cut { model: String, bytes: u64, source: reqwest::Error },
    /// A complete answer that is not what was requested.
    #[error("the answer of `{model}` is {flaw}{}", after_colon(said))]
    BadAnswer { model: String, flaw: AnswerFlaw, said: String },
    #[error("the base URL of `{model}` {problem}")]
    BaseUrl { model: String, problem: &'static str },
    #[error("the key of `{model}` contains characters that cannot be sent")]
    Key { model: String },
    #[error("the profile's `extra` sets `{field}` of `{model}`, which ralph sets itself")]
    Reserved { model: String, field: &'static str },
    #[error("could not set up the HTTP client")]
    Client { source: reqwest::Error },
    #[error("`{model}` has no reply for {key}")]
    ScriptEnded { model: String, key: CallKey },
    #[error("the call of `{model}` was stopped")]
    Stopped { model: String },
    /// No call was in flight when it was stopped.
    #[error("`{model}` was not called again")]
    CancelledWhileWaiting { model: String },
}

/// The defect of an answer with a success status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnswerFlaw {
    Empty,
    Html,
    NotJson,
    /// JSON, but without a choice that holds a message.
    NoChoice,
    TooLarge {
        cap: u64,
    },
}

impl fmt::Display for AnswerFlaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("empty"),
            Self::Html => f.write_str("an HTML page"),
            Self::NotJson => f.write_str("not JSON"),
            Self::NoChoice => f.write_str("JSON without a message"),
            Self::TooLarge { cap } => write!(f, "larger than {} MiB", cap / (1024 * 1024)),
        }
    }
}

fn after_colon(said: &str) -> String {
    if said.is_empty() { String::new() } else { format!(": {said}") }
}

/// Reports whether a connection failed because of the server's certificate.
pub(crate) fn is_untrusted_certificate(error: &reqwest::Error) -> bool {
    let mut next: Option<&(dyn error::Error + 'static)> = Some(error);
    while let Some(one) = next {
        if let Some(rustls::Error::InvalidCertificate(_)) = one.downcast_ref() {
            return true;
        }
        // The error inside an I/O error is not among its sources, only that error's own source.
        let held = one.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = held.map(|held| held as &(dyn error::Error + 'static)).or_else(|| one.source());
    }
    false
}

impl Error {
    /// Returns the class of the error, which decides whether a retry can help.
    pub fn class(&self) -> ModelErrorClass {
        match self {
            Self::Status { class, .. } => *class,
            Self::Timeout { .. } => ModelErrorClass::Timeout,
            Self::Connect { .. } | Self::Lost { .. } => ModelErrorClass::Connect,
            Self::Untrusted { .. } => ModelErrorClass::Untrusted,
            Self::Cut { .. } | Self::BadAnswer { .. } => ModelErrorClass::BadAnswer,
            Self::BaseUrl { .. } | Self::Reserved { .. } | Self::Client { .. } => ModelErrorClass::BadRequest,
            Self::Key { .. } => ModelErrorClass::Auth,
            Self::ScriptEnded { .. } => ModelErrorClass::ScriptEnded,
            Self::Stopped { .. } | Self::CancelledWhileWaiting { .. } => ModelErrorClass::Stopped,
        }
    }

    /// Reports whether a remote provider may charge for the call although there is no answer.
    pub fn may_have_cost(&self) -> bool {
        match self {
            Self::Timeout { .. }
            | Self::Lost { .. }
            | Self::Cut { .. }
            | Self::BadAnswer { .. }
            | Self::Stopped { .. } => true,
            // The same rule as in the egress proxy.
            Self::Status { status, billed, .. } => *billed || meter::is_timeout_status(*status),
            Self::Connect { .. }
            | Self::Untrusted { .. }
            | Self::BaseUrl { .. }
            | Self::Key { .. }
            | Self::Reserved { .. }
            | Self::Client { .. }
            | Self::ScriptEnded { .. }
            | Self::CancelledWhileWaiting { .. } => false,
        }
    }

    /// Returns what to do next, if that is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Status { class, .. } => class.hint().map(str::to_owned),
            Self::Timeout { .. } => Some("raise `timeout_s` in the profile, or lower `max_output_tokens`".into()),
            Self::Connect { host, .. } => {
                Some(format!("check the profile's `base_url` and that `{host}` is reachable"))
            }
            Self::Untrusted { .. } => ModelErrorClass::Untrusted.hint().map(str::to_owned),
            Self::BadAnswer { flaw: AnswerFlaw::Html | AnswerFlaw::NoChoice | AnswerFlaw::NotJson, .. } => {
                Some("check that the profile's `base_url` is one of its provider's API".into())
            }
            Self::BaseUrl { .. } => Some("write it like `https://api.example.com/v1`".into()),
            Self::Key { .. } => Some("set the key again: `ralph help environment` lists the variables".into()),
            Self::Reserved { field, .. } => Some(format!("remove `{field}` from the profile's `extra`")),
            Self::ScriptEnded { key, .. } => {
                Some(format!("add a reply for {key} to the script, or end it with a reply that has `\"repeat\": true`"))
            }
            Self::Lost { .. }
            | Self::Cut { .. }
            | Self::BadAnswer { .. }
            | Self::Client { .. }
            | Self::Stopped { .. }
            | Self::CancelledWhileWaiting { .. } => None,
        }
    }
}
