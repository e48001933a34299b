//! Reads calls, and writes answers and errors, on each of the four wire formats.

mod anthropic;
mod chat;
mod gemini;
mod responses;

use hyper::{HeaderMap, Method, Uri};
use serde_json::{Value, json};

use super::billing;
use super::script::BilledTokens;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FakeModelWire {
    Anthropic,
    Chat,
    Responses,
    Gemini,
}

/// What a request asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ParsedModelRequest {
    Call(FakeModelCall),
    Count(FakeModelWire, u64),
    Models(FakeModelWire),
    /// A websocket, which is refused.
    WebsocketUpgrade(FakeModelWire),
    HealthProbe,
    NotFound(FakeModelWire),
}

/// A model call, as far as the answer depends on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FakeModelCall {
    pub(super) wire: FakeModelWire,
    pub(super) model: String,
    pub(super) stream: StreamFormat,
    pub(super) reports_usage: bool,
    pub(super) offers_tools: bool,
    pub(super) max_tokens: Option<u64>,
    pub(super) prompt_tokens: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamFormat {
    No,
    Events,
    /// Gemini without `alt=sse`: one array, object by object.
    Array,
}

/// An answer, independent of the wire.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct FakeModelAnswer {
    /// Makes ids that differ from answer to answer.
    pub(super) number: usize,
    pub(super) model: String,
    pub(super) content: FakeModelContent,
    pub(super) stop: FakeStopReason,
    /// `None` where the server does not report it.
    pub(super) usage: Option<BilledTokens>,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum FakeModelContent {
    Text(String),
    Tool { name: String, input: Value },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FakeStopReason {
    End,
    Tool,
    Length,
}

impl FakeModelAnswer {
    /// Returns the text word by word, each with the space after it.
    fn pieces(text: &str) -> impl Iterator<Item = &str> {
        text.split_inclusive(' ')
    }

    fn id(&self, prefix: &str) -> String {
        format!("{prefix}{:024x}", self.number)
    }
}

/// Parses a request as it arrived.
pub(super) fn parse_request(method: &Method, uri: &Uri, headers: &HeaderMap, body: &Value) -> ParsedModelRequest {
    let path = uri.path();
    let wire = guess_wire(path, headers);
    if headers.contains_key("upgrade") {
        return ParsedModelRequest::WebsocketUpgrade(wire);
    }
    match *method {
        Method::HEAD => ParsedModelRequest::HealthProbe,
        Method::GET if path.ends_with("/models") => ParsedModelRequest::Models(wire),
        Method::POST if path.ends_with("/messages/count_tokens") || path.ends_with(":countTokens") => {
            ParsedModelRequest::Count(wire, prompt_tokens(wire, body))
        }
        Method::POST if is_call(path) => ParsedModelRequest::Call(parse_call(wire, uri, body)),
        _ => ParsedModelRequest::NotFound(wire),
    }
}

fn is_call(path: &str) -> bool {
    ["/messages", "/chat/completions", "/responses", ":generateContent", ":streamGenerateContent"]
        .iter()
        .any(|end| path.ends_with(end))
}

fn guess_wire(path: &str, headers: &HeaderMap) -> FakeModelWire {
    if path.contains("/v1beta") || path.contains(":generateContent") || path.contains(":streamGenerateContent") {
        FakeModelWire::Gemini
    } else if path.contains("/messages") || headers.contains_key("anthropic-version") {
        FakeModelWire::Anthropic
    } else if path.ends_with("/responses") {
        FakeModelWire::Responses
    } else {
        FakeModelWire::Chat
    }
}

fn parse_call(wire: FakeModelWire, uri: &Uri, body: &Value) -> FakeModelCall {
    let number = |path: &str| body.pointer(path).and_then(Value::as_u64);
    let flag = |path: &str| body.pointer(path).and_then(Value::as_bool).unwrap_or(false);
    let sse = if flag("/stream") { StreamFormat::Events } else { StreamFormat::No };
    let (model, stream, reports_usage, max_tokens) = match wire {
        FakeModelWire::Anthropic => (None, sse, true, number("/max_tokens")),
        FakeModelWire::Chat => {
            let reported = sse == StreamFormat::No || flag("/stream_options/include_usage");
            (None, sse, reported, number("/max_completion_tokens").or_else(|| number("/max_tokens")))
        }
        FakeModelWire::Responses => (None, sse, true, number("/max_output_tokens")),
        FakeModelWire::Gemini => {
            let last = uri.path().rsplit('/').next().unwrap_or_default();
            let (model, verb) = last.split_once(':').unwrap_or((last, ""));
            let events = uri.query().is_some_and(|query| query.split('&').any(|pair| pair == "alt=sse"));
            let stream = match (verb == "streamGenerateContent", events) {
                (false, _) => StreamFormat::No,
                (true, true) => StreamFormat::Events,
                (true, false) => StreamFormat::Array,
            };
            (Some(model.to_owned()), stream, true, number("/generationConfig/maxOutputTokens"))
        }
    };
    let named = || body.get("model").and_then(Value::as_str).unwrap_or_default().to_owned();
    FakeModelCall {
        wire,
        model: model.unwrap_or_else(named),
        stream,
        reports_usage,
        offers_tools: body.get("tools").and_then(Value::as_array).is_some_and(|tools| !tools.is_empty()),
        max_tokens,
        prompt_tokens: prompt_tokens(wire, body),
    }
}

fn prompt_tokens(wire: FakeModelWire, body: &Value) -> u64 {
    let fields: &[&str] = match wire {
        FakeModelWire::Anthropic => &["system", "messages", "tools"],
        FakeModelWire::Chat => &["messages", "tools"],
        FakeModelWire::Responses => &["instructions", "input", "tools"],
        FakeModelWire::Gemini => &["systemInstruction", "contents", "tools"],
    };
    billing::tokens_of_bytes(fields.iter().filter_map(|field| body.get(field)).map(billing::text_bytes).sum())
}

impl FakeModelWire {
    /// Returns the answer as one object.
    pub(super) fn complete_body(self, answer: &FakeModelAnswer) -> Value {
        match self {
            Self::Anthropic => anthropic::complete_body(answer),
            Self::Chat => chat::complete_body(answer),
            Self::Responses => responses::complete_body(answer),
            Self::Gemini => gemini::complete_body(answer),
        }
    }

    /// Returns the answer as one object, with a usage in the fields of chat that is renamed to those of this wire and
    /// otherwise unchanged, right or wrong; null omits it.
    pub(super) fn body_with_usage(self, answer: &FakeModelAnswer, usage: &Value) -> Value {
        let mut body = self.complete_body(answer);
        let field = if self == Self::Gemini { "usageMetadata" } else { "usage" };
        if let (Some(body), false) = (body.as_object_mut(), usage.is_null()) {
            body.insert(field.to_owned(), self.rename_usage(usage));
        }
        // Models that reason send the reasoning before the text.
        if self == Self::Responses
            && let Some(output) = body.get_mut("output").and_then(Value::as_array_mut)
        {
            output.insert(0, json!({"type": "reasoning", "id": "rs_1", "summary": []}));
        }
        body
    }

    fn rename_usage(self, usage: &Value) -> Value {
        let (prompt, output) = match self {
            Self::Chat => return usage.clone(),
            Self::Responses | Self::Anthropic => ("input_tokens", "output_tokens"),
            Self::Gemini => ("promptTokenCount", "candidatesTokenCount"),
        };
        let Some(fields) = usage.as_object() else { return usage.clone() };
        let renamed = fields.iter().map(|(name, value)| {
            let name = match name.as_str() {
                "prompt_tokens" => prompt,
                "completion_tokens" => output,
                other => other,
            };
            (name.to_owned(), value.clone())
        });
        Value::Object(renamed.collect())
    }

    /// Returns whether a request asks for a JSON object.
    pub(super) fn wants_json(self, body: &Value) -> bool {
        let field = match self {
            Self::Chat => "/response_format",
            Self::Responses => "/text/format",
            Self::Anthropic => return false,
            Self::Gemini => "/generationConfig/responseMimeType",
        };
        body.pointer(field).is_some()
    }

    /// Returns the answer as the pieces of a stream.
    pub(super) fn events(self, answer: &FakeModelAnswer, stream: StreamFormat) -> Vec<String> {
        match self {
            Self::Anthropic => anthropic::events(answer),
            Self::Chat => chat::events(answer),
            Self::Responses => responses::events(answer),
            Self::Gemini => gemini::events(answer, stream),
        }
    }

    pub(super) fn error(self, status: u16, kind: &str, message: &str) -> Value {
        match self {
            Self::Anthropic => {
                json!({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_scripted"})
            }
            Self::Chat | Self::Responses => {
                json!({"error": {"message": message, "type": kind, "param": null, "code": kind}})
            }
            Self::Gemini => json!({"error": {"code": status, "message": message, "status": kind}}),
        }
    }

    /// Returns an error in the middle of a stream.
    pub(super) fn stream_error(self, kind: &str, message: &str) -> String {
        match self {
            Self::Anthropic => {
                named_event("error", &json!({"type": "error", "error": {"type": kind, "message": message}}))
            }
            Self::Chat => data_event(&self.error(500, kind, message)),
            Self::Responses => {
                let error = json!({"code": kind, "message": message});
                let response = json!({"object": "response", "status": "failed", "output": [], "error": error});
                named_event("response.failed", &json!({"type": "response.failed", "response": response}))
            }
            Self::Gemini => format!("data: {}\r\n\r\n", self.error(500, kind, message)),
        }
    }

    pub(super) fn models(self) -> Value {
        match self {
            Self::Anthropic => json!({
                "data": [{"id": MODEL, "type": "model", "display_name": MODEL, "created_at": "2026-01-01T00:00:00Z"}],
                "has_more": false, "first_id": MODEL, "last_id": MODEL,
            }),
            Self::Chat | Self::Responses => {
                json!({"object": "list", "data": [{"id": MODEL, "object": "model", "created": 0, "owned_by": "nobody"}]})
            }
            Self::Gemini => json!({"models": [{"name": format!("models/{MODEL}"), "displayName": MODEL}]}),
        }
    }

    pub(super) fn count(self, tokens: u64) -> Value {
        match self {
            Self::Gemini => json!({"totalTokens": tokens}),
            Self::Anthropic | Self::Chat | Self::Responses => json!({"input_tokens": tokens}),
        }
    }

    /// Returns the error kind for a wrong key.
    pub(super) fn unauthorised(self) -> &'static str {
        match self {
            Self::Anthropic => "authentication_error",
            Self::Chat | Self::Responses => "invalid_api_key",
            Self::Gemini => "UNAUTHENTICATED",
        }
    }

    pub(super) fn not_found(self) -> &'static str {
        match self {
            Self::Anthropic => "not_found_error",
            Self::Chat | Self::Responses => "invalid_request_error",
            Self::Gemini => "NOT_FOUND",
        }
    }
}

/// The only model that the server lists; calls may name any.
const MODEL: &str = "scripted";

fn named_event(event: &str, value: &Value) -> String {
    format!("event: {event}\ndata: {value}\n\n")
}

fn data_event(value: &Value) -> String {
    format!("data: {value}\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        let call = |path: &str, body: &Value| match parse_request(
            &Method::POST,
            &path.parse().unwrap(),
            &HeaderMap::new(),
            body,
        ) {
            ParsedModelRequest::Call(call) => Some((call.wire, call.model)),
            _ => None,
        };
        for (path, want) in [
            ("/v1/chat/completions", Some(FakeModelWire::Chat)),
            ("/openai/deployments/d/chat/completions", Some(FakeModelWire::Chat)),
            ("/v1/responses", Some(FakeModelWire::Responses)),
            ("/v1/messages", Some(FakeModelWire::Anthropic)),
            ("/v1beta/models/m:generateContent", Some(FakeModelWire::Gemini)),
            ("/v1/models", None),
        ] {
            assert_eq!(call(path, &json!({})).map(|(wire, _)| wire), want, "{path}");
        }
        let model = |path: &str, body: &Value| call(path, body).map(|(_, model)| model);
        assert_eq!(model("/v1beta/models/m:generateContent", &json!({})).as_deref(), Some("m"));
        assert_eq!(model("/v1/messages", &json!({"model": "n"})).as_deref(), Some("n"));
    }

    #[test]
    fn usage_in_each_format() {
        let content = FakeModelContent::Text("hi".to_owned());
        let answer = FakeModelAnswer { number: 1, model: "m".into(), content, stop: FakeStopReason::End, usage: None };
        let usage = json!({"prompt_tokens": -3, "completion_tokens": "5"});
        let renamed = json!({"input_tokens": -3, "output_tokens": "5"});
        for (wire, place, want) in [
            (FakeModelWire::Chat, "usage", usage.clone()),
            (FakeModelWire::Responses, "usage", renamed.clone()),
            (FakeModelWire::Anthropic, "usage", renamed),
            (FakeModelWire::Gemini, "usageMetadata", json!({"promptTokenCount": -3, "candidatesTokenCount": "5"})),
        ] {
            assert_eq!(wire.body_with_usage(&answer, &usage)[place], want);
            assert!(!wire.body_with_usage(&answer, &Value::Null).to_string().contains("\"usage"));
        }
    }
}
