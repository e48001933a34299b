//! Clients that write their requests by hand, and requests in the format of each provider.

use std::fmt::Write as _;
use std::net::SocketAddr;

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::fixture::{MODEL, TEST_TIMEOUT};

/// The four APIs of models.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TestApi {
    Messages,
    Chat,
    Responses,
    Gemini,
}

pub(crate) const TEST_APIS: [TestApi; 4] = [TestApi::Messages, TestApi::Chat, TestApi::Responses, TestApi::Gemini];

impl TestApi {
    /// Returns the name of the route that the tests use for its API.
    pub(crate) fn route(self) -> &'static str {
        match self {
            Self::Messages => "anthropic",
            Self::Chat | Self::Responses => "openai",
            Self::Gemini => "gemini",
        }
    }

    /// Returns the path within the route.
    pub(crate) fn path(self, model: &str, stream: bool) -> String {
        match self {
            Self::Messages => "/v1/messages".to_owned(),
            Self::Chat => "/v1/chat/completions".to_owned(),
            Self::Responses => "/v1/responses".to_owned(),
            Self::Gemini if stream => format!("/v1beta/models/{model}:streamGenerateContent?alt=sse"),
            Self::Gemini => format!("/v1beta/models/{model}:generateContent"),
        }
    }

    /// Returns a body with a prompt, and with an output limit if there is one.
    pub(crate) fn body(self, model: &str, prompt: &str, most: Option<u64>, stream: bool) -> Value {
        let messages = json!([{"role": "user", "content": prompt}]);
        let mut body = match self {
            Self::Messages | Self::Chat => json!({"model": model, "messages": messages}),
            Self::Responses => json!({"model": model, "input": prompt}),
            Self::Gemini => json!({"contents": [{"role": "user", "parts": [{"text": prompt}]}]}),
        };
        if stream && self != Self::Gemini {
            body["stream"] = json!(true);
        }
        if let Some(most) = most {
            match self {
                Self::Messages => body["max_tokens"] = json!(most),
                Self::Chat => body["max_completion_tokens"] = json!(most),
                Self::Responses => body["max_output_tokens"] = json!(most),
                Self::Gemini => body["generationConfig"] = json!({"maxOutputTokens": most}),
            }
        }
        body
    }

    /// Returns the header by which a client of this API sends its key.
    pub(crate) fn key(self, key: &str) -> String {
        match self {
            Self::Messages => format!("x-api-key: {key}"),
            Self::Chat | Self::Responses => format!("authorization: Bearer {key}"),
            Self::Gemini => format!("x-goog-api-key: {key}"),
        }
    }

    /// Returns a plain call of the model.
    pub(crate) fn call(self, key: &str, most: Option<u64>, stream: bool) -> Vec<u8> {
        let path = format!("/r/{}{}", self.route(), self.path(MODEL, stream));
        post(&path, &[&self.key(key)], self.body(MODEL, "Say something.", most, stream).to_string().as_bytes())
    }
}

/// Returns a request without a body.
pub(crate) fn get(method: &str, path: &str, headers: &[&str]) -> Vec<u8> {
    request(method, path, "ralph.test", headers, None)
}

/// Returns a request with a body.
pub(crate) fn post(path: &str, headers: &[&str], body: &[u8]) -> Vec<u8> {
    request("POST", path, "ralph.test", headers, Some(body))
}

pub(crate) fn request(method: &str, path: &str, host: &str, headers: &[&str], body: Option<&[u8]>) -> Vec<u8> {
    let mut text = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n");
    for header in headers {
        text.push_str(header);
        text.push_str("\r\n");
    }
    if let Some(body) = body {
        text.push_str("Content-Type: application/json\r\n");
        if !headers.iter().any(|header| header.to_ascii_lowercase().starts_with("transfer-encoding")) {
            write!(text, "Content-Length: {}\r\n", body.len()).unwrap();
        }
    }
    text.push_str("\r\n");
    [text.as_bytes(), body.unwrap_or_default()].concat()
}

/// An answer as it arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RawHttpAnswer {
    pub(crate) status: u16,
    /// The status line and the headers.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// Whether the answer ended properly.
    pub(crate) complete: bool,
}

impl RawHttpAnswer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// Returns a header by its name in small letters.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let line = self
            .head
            .lines()
            .skip(1)
            .find(|line| line.split_once(':').is_some_and(|(own, _)| own.eq_ignore_ascii_case(name)))?;
        line.split_once(':').map(|(_, value)| value.trim())
    }
}

/// Sends bytes to a listener and reads the one answer.
pub(crate) async fn send_and_read(address: SocketAddr, request_bytes: &[u8]) -> RawHttpAnswer {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // The proxy may close a refused connection without reading from it.
    stream.write_all(request_bytes).await.ok();
    read(&mut stream).await
}

/// Reads one answer, however its end is determined.
pub(crate) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> RawHttpAnswer {
    timeout(TEST_TIMEOUT, read_answer(stream)).await.expect("an answer ends")
}

async fn read_answer(stream: &mut (impl AsyncRead + Unpin)) -> RawHttpAnswer {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read_u8().await {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let mut got = RawHttpAnswer { status, head, body: Vec::new(), complete: false };
    if status == 100 {
        return got;
    }
    if got.header("transfer-encoding").is_some() {
        got.complete = read_chunks(stream, &mut got.body).await.is_some();
    } else if let Some(length) = got.header("content-length").and_then(|length| length.parse().ok()) {
        got.body = vec![0; length];
        got.complete = stream.read_exact(&mut got.body).await.is_ok();
    } else {
        got.complete = stream.read_to_end(&mut got.body).await.is_ok() && status != 0;
    }
    got
}

async fn read_chunks(stream: &mut (impl AsyncRead + Unpin), body: &mut Vec<u8>) -> Option<()> {
    loop {
        let chunk = next_chunk(stream).await?;
        if chunk.is_empty() {
            return Some(());
        }
        body.extend_from_slice(&chunk);
    }
}

/// Reads one chunk of a body; an empty one is the last.
pub(crate) async fn next_chunk(stream: &mut (impl AsyncRead + Unpin)) -> Option<Vec<u8>> {
    let mut line = String::new();
    while !line.ends_with("\r\n") {
        line.push(char::from(stream.read_u8().await.ok()?));
    }
    let length = usize::from_str_radix(line.trim(), 16).ok()?;
    let mut chunk = vec![0; length + 2];
    stream.read_exact(&mut chunk).await.ok()?;
    chunk.truncate(length);
    Some(chunk)
}

/// Returns everything that still comes, until the other side closes.
pub(crate) async fn rest(stream: &mut (impl AsyncRead + Unpin)) -> Vec<u8> {
    let mut all = Vec::new();
    // A reset is an end as well.
    timeout(TEST_TIMEOUT, stream.read_to_end(&mut all)).await.expect("the connection ends").ok();
    all
}
