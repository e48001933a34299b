//! The ways the model server can answer.

use std::time::Duration;

use serde_json::{Value, json};

use super::wire::FaultyModelWire;

/// How one request is answered.
#[derive(Debug, Clone, PartialEq)]
pub enum ModelBehaviour {
    /// A fine answer; `usage` is told in the words of chat and sent as it is, right or wrong, and left out when null.
    Ok { content: String, usage: Value },
    /// A status with any body and headers.
    Status { code: u16, body: String, headers: Vec<(String, String)> },
    /// Status 200 with any body, under any content type.
    Raw { body: String, content_type: String },
    /// A fine answer, late.
    Slow { content: String, delay: Duration },
    /// A fine answer in so many pieces, with a pause before each but the first.
    PacedChunks { content: String, pieces: usize, pause: Duration },
    /// No answer at all, over an open connection.
    Hang,
    /// The headers and the first bytes of a fine answer, then nothing, over an open connection.
    Stall,
    /// The headers and the first bytes of a fine answer, then the end of the connection.
    Cut,
    /// The request is read, then the connection is reset.
    Reset,
    /// A fine answer of at least this many bytes.
    Huge { bytes: usize },
    /// Refuses the wish for a JSON object, and answers requests without it.
    NoJsonMode { content: String },
}

impl ModelBehaviour {
    /// A fine answer with honest usage.
    pub fn ok(content: impl Into<String>) -> Self {
        Self::Ok { content: content.into(), usage: json!({"prompt_tokens": 12, "completion_tokens": 5}) }
    }

    /// An error without anything to say.
    pub fn status(code: u16) -> Self {
        Self::Status { code, body: String::new(), headers: Vec::new() }
    }

    /// An error as OpenAI words it.
    pub fn error(code: u16, kind: &str, message: &str) -> Self {
        let body = json!({"error": {"message": message, "type": kind, "param": null, "code": kind}}).to_string();
        Self::Status { code, body, headers: vec![("content-type".into(), "application/json".into())] }
    }

    /// A too-many-requests error that says when to return.
    pub fn rate_limited(retry_after: &str) -> Self {
        match Self::error(429, "rate_limit_exceeded", "slow down") {
            Self::Status { code, body, mut headers } => {
                headers.push(("retry-after".into(), retry_after.into()));
                Self::Status { code, body, headers }
            }
            other => other,
        }
    }

    /// No room for anybody, as Anthropic says it.
    pub fn overloaded() -> Self {
        Self::error(529, "overloaded_error", "Overloaded")
    }

    /// Another address, which nobody should follow.
    pub fn redirect(to: &str) -> Self {
        Self::Status { code: 307, body: String::new(), headers: vec![("location".into(), to.into())] }
    }

    /// A gateway's web page.
    pub fn html(code: u16) -> Self {
        let body =
            format!("<!DOCTYPE html><html><head><title>{code} Bad Gateway</title></head><body>nginx</body></html>");
        Self::Status { code, body, headers: vec![("content-type".into(), "text/html".into())] }
    }

    /// A fine status around something that is not JSON.
    pub fn invalid_json() -> Self {
        Self::Raw {
            body: r#"{"choices": [{"message": {"content": "hi"}"#.into(),
            content_type: "application/json".into(),
        }
    }

    /// A fine answer that calls itself something else.
    pub fn wrong_content_type(content: &str) -> Self {
        let body = FaultyModelWire::Chat.answer("m", content, &Value::Null);
        Self::Raw { body, content_type: "text/html; charset=utf-8".into() }
    }
}
