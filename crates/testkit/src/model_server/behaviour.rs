//! Defines the ways in which the model server can misbehave, and what each sends. None of them streams.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use serde_json::{Value, json};

use super::connection::{ConnectionFault, FaultControl};
use super::reply::{FakeModelReply, plain_reply};
use super::reply_body::ReplyBody;
use super::wire::{FakeModelAnswer, FakeModelCall, FakeModelContent, FakeModelWire, FakeStopReason};

const JSON: &str = "application/json";
const PLAIN: &str = "text/plain; charset=utf-8";
/// Enough bytes for the headers and some of the body of an answer, never for all of it: see `long_reply`.
const PARTIAL_BYTES: usize = 400;

/// How one request is answered.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelBehaviour {
    /// A valid answer; `usage` has the fields of chat and is sent unchanged, right or wrong, and omitted when null.
    Ok { content: String, usage: Value },
    /// A status with any body and headers.
    Status { code: u16, body: String, headers: Vec<(String, String)> },
    /// Status 200 with any body, under any content type.
    Raw { body: String, content_type: String },
    /// A valid answer, late.
    Slow { content: String, delay: Duration },
    /// A valid answer in several pieces, with a pause before each but the first.
    PacedChunks { content: String, pieces: usize, pause: Duration },
    /// No answer at all, over an open connection.
    Hang,
    /// The headers and the first bytes of a valid answer, then nothing, over an open connection.
    Stall,
    /// The headers and the first bytes of a valid answer, then the end of the connection.
    Cut,
    /// The request is read, then the connection is reset.
    Reset,
    /// A valid answer of at least this many bytes.
    Huge { bytes: usize },
    /// Refuses requests for a JSON object, and answers other requests.
    NoJsonMode { content: String },
}

impl ModelBehaviour {
    /// Returns a valid answer with correct usage.
    pub fn ok(content: impl Into<String>) -> Self {
        Self::Ok { content: content.into(), usage: honest_usage() }
    }

    /// Returns an error with an empty body.
    pub fn status(code: u16) -> Self {
        Self::Status { code, body: String::new(), headers: Vec::new() }
    }

    /// Returns an error in OpenAI's format.
    pub fn error(code: u16, kind: &str, message: &str) -> Self {
        let body = json!({"error": {"message": message, "type": kind, "param": null, "code": kind}}).to_string();
        Self::Status { code, body, headers: vec![("content-type".into(), "application/json".into())] }
    }

    /// Returns a too-many-requests error with a `retry-after` header.
    pub fn rate_limited(retry_after: &str) -> Self {
        match Self::error(429, "rate_limit_exceeded", "slow down") {
            Self::Status { code, body, mut headers } => {
                headers.push(("retry-after".into(), retry_after.into()));
                Self::Status { code, body, headers }
            }
            other => other,
        }
    }

    /// Returns Anthropic's error for an overloaded server.
    pub fn overloaded() -> Self {
        Self::error(529, "overloaded_error", "Overloaded")
    }

    /// Returns a redirect, which no client should follow.
    pub fn redirect(to: &str) -> Self {
        Self::Status { code: 307, body: String::new(), headers: vec![("location".into(), to.into())] }
    }

    /// Returns a gateway's web page.
    pub fn html(code: u16) -> Self {
        let body =
            format!("<!DOCTYPE html><html><head><title>{code} Bad Gateway</title></head><body>nginx</body></html>");
        Self::Status { code, body, headers: vec![("content-type".into(), "text/html".into())] }
    }

    /// Returns a success status with a body that is not JSON.
    pub fn invalid_json() -> Self {
        Self::Raw {
            body: r#"{"choices": [{"message": {"content": "hi"}"#.into(),
            content_type: "application/json".into(),
        }
    }

    /// Returns a valid answer with a wrong content type.
    pub fn wrong_content_type(content: &str) -> Self {
        let body = FakeModelWire::Chat.body_with_usage(&text_answer("m", content), &Value::Null);
        Self::Raw { body: body.to_string(), content_type: "text/html; charset=utf-8".into() }
    }

    /// Returns what is sent for a call; `None` where it is left without an answer. `answered` counts the valid answers
    /// that were sent to their last byte.
    pub(super) fn reply(
        &self,
        call: &FakeModelCall,
        wants_json: bool,
        connection: &FaultControl,
        answered: &Arc<AtomicUsize>,
    ) -> Option<FakeModelReply> {
        let fine = |content: &str, usage: &Value, pieces: usize, pause: Duration| {
            let body = call.wire.body_with_usage(&text_answer(&call.model, content), usage).to_string();
            let body = ReplyBody::paced(body, pieces, pause, Arc::clone(answered));
            FakeModelReply { body, ..plain_reply(200, JSON, Vec::new(), Duration::ZERO) }
        };
        let honest = |content: &str| fine(content, &honest_usage(), 1, Duration::ZERO);
        Some(match self {
            Self::Ok { content, usage } => fine(content, usage, 1, Duration::ZERO),
            Self::Status { code, body, headers } => {
                let (types, headers): (Vec<_>, Vec<_>) =
                    headers.iter().cloned().partition(|(name, _)| name == "content-type");
                let content_type = types.first().map_or(PLAIN, |(_, value)| value.as_str());
                FakeModelReply { headers, ..plain_reply(*code, content_type, body.clone().into(), Duration::ZERO) }
            }
            Self::Raw { body, content_type } => plain_reply(200, content_type, body.clone().into(), Duration::ZERO),
            Self::Slow { content, delay } => FakeModelReply { before: *delay, ..honest(content) },
            Self::PacedChunks { content, pieces, pause } => fine(content, &honest_usage(), *pieces, *pause),
            Self::Hang => return None,
            Self::Stall => {
                connection.set(ConnectionFault::Stall(PARTIAL_BYTES));
                long_reply(call)
            }
            Self::Cut => {
                connection.set(ConnectionFault::Cut(PARTIAL_BYTES));
                long_reply(call)
            }
            Self::Reset => {
                connection.set(ConnectionFault::Reset);
                plain_reply(503, PLAIN, Vec::new(), Duration::ZERO)
            }
            Self::Huge { bytes } => honest(&"x".repeat(*bytes)),
            Self::NoJsonMode { .. } if wants_json => {
                let message = "'response_format' of type 'json_object' is not supported with this model.";
                let error = json!({"error": {"message": message, "type": "invalid_request_error",
                    "param": "response_format", "code": null}});
                plain_reply(400, JSON, error.to_string().into(), Duration::ZERO)
            }
            Self::NoJsonMode { content } => honest(content),
        })
    }

    /// Returns whether the client is left waiting.
    pub(super) fn leaves_unanswered(&self) -> bool {
        matches!(self, Self::Hang | Self::Stall)
    }
}

/// Returns the answer to requests that are not model calls.
pub(super) fn not_found() -> FakeModelReply {
    plain_reply(404, PLAIN, json!({"detail": "Not Found"}).to_string().into(), Duration::ZERO)
}

fn honest_usage() -> Value {
    json!({"prompt_tokens": 12, "completion_tokens": 5})
}

fn text_answer(model: &str, content: &str) -> FakeModelAnswer {
    let content = FakeModelContent::Text(content.to_owned());
    FakeModelAnswer { number: 1, model: model.to_owned(), content, stop: FakeStopReason::End, usage: None }
}

/// Returns an answer that is longer than `PARTIAL_BYTES`.
fn long_reply(call: &FakeModelCall) -> FakeModelReply {
    let answer = text_answer(&call.model, &"x".repeat(2 * PARTIAL_BYTES));
    let body = call.wire.body_with_usage(&answer, &honest_usage()).to_string();
    plain_reply(200, JSON, body.into(), Duration::ZERO)
}
