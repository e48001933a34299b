//! Calls models behind a server, in any of the formats of `wire`.
//!
//! One call sends one request (and one more for each optional field the server refuses). Retrying after an error is
//! `retry`'s job; streaming and tools are not needed: an iteration is one prompt and one JSON object.

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ralph_core::profile::ProviderProtocol;
use ralph_core::secret::Secret;
use reqwest::header::{CONTENT_TYPE, DATE, HeaderMap, HeaderValue};
use reqwest::{Client, NoProxy, Proxy, Response, Url, redirect, retry};
use serde_json::Value;

use super::endpoint_url::{self, KeyScheme};
use super::error::is_untrusted_certificate;
use super::error_body::{ProviderErrorBody, safe_excerpt};
use super::wire::{ModelWireFormat, SupportedFields};
use super::{AnswerFlaw, CallKey, Error, LanguageModel, ModelFinishReason, ModelReply, ModelRequest, classify};
use crate::audit::EngineCallTarget;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const ANSWER_CAP: usize = 8 * 1024 * 1024;
/// An error body is read for its message, not kept.
const ERROR_CAP: usize = 64 * 1024;

/// Builds the HTTP client that all models share. `proxy` is the host's own proxy, if it has one.
pub fn client(proxy: Option<&str>) -> Result<Client, Error> {
    let builder = Client::builder()
        .connect_timeout(CONNECT_TIMEOUT)
        .pool_idle_timeout(Duration::from_secs(30))
        // A redirect could carry the prompt, and on the same host the key, to an unintended place.
        .redirect(redirect::Policy::none())
        // Calls are counted: only `retry` may repeat one.
        .retry(retry::never())
        .user_agent(concat!("ralph/", env!("CARGO_PKG_VERSION")))
        // The environment is read in one place, which is not here.
        .no_proxy();
    let builder = match proxy {
        Some(url) => {
            let proxy = Proxy::all(url).map_err(|source| Error::Client { source: source.without_url() })?;
            builder.proxy(proxy.no_proxy(NoProxy::from_string("localhost,127.0.0.0/8,::1")))
        }
        None => builder,
    };
    builder.build().map_err(|source| Error::Client { source: source.without_url() })
}

/// The endpoint of a model and how to call it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteEndpoint {
    /// The display name: `zai/glm-4.7`.
    pub name: String,
    /// The server's name for it: `glm-4.7`.
    pub model: String,
    pub wire: ProviderProtocol,
    /// Everything before the protocol's own path; a query is kept.
    pub base_url: String,
    /// The API version of an Azure deployment.
    pub api_version: Option<String>,
    pub key: Option<Secret>,
    pub scheme: KeyScheme,
}

/// A model behind a server.
pub struct RemoteModel {
    client: Client,
    name: String,
    model: String,
    format: ModelWireFormat,
    url: Url,
    host: String,
    key: Option<Secret>,
    /// The name of the key.
    credential: Option<String>,
    headers: HeaderMap,
    /// The fields the server was found to accept. Only saves refused requests; answers do not depend on it.
    shape: Mutex<SupportedFields>,
}

// The URL's query may contain a key, so only the host is shown.
impl fmt::Debug for RemoteModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteModel").field("name", &self.name).field("host", &self.host).finish_non_exhaustive()
    }
}

impl RemoteModel {
    pub fn new(client: Client, endpoint: RemoteEndpoint) -> Result<Self, Error> {
        let RemoteEndpoint { name, model, wire, base_url, api_version, key, scheme } = endpoint;
        let bad = |problem| Error::BaseUrl { model: name.clone(), problem };
        let format = ModelWireFormat::of(wire).ok_or_else(|| bad("does not lead to a server"))?;
        let (url, host) = endpoint_url::request_url(wire, &base_url, &model, api_version.as_deref()).map_err(bad)?;
        let headers =
            endpoint_url::auth_headers(wire, key.as_ref(), scheme).map_err(|()| Error::Key { model: name.clone() })?;
        let shape = Mutex::new(SupportedFields::of(&model));
        Ok(Self { client, name, model, format, url, host, key, credential: None, headers, shape })
    }

    /// Sets the name of the key, for the audit log.
    #[must_use]
    pub fn with_credential_name(self, credential: Option<String>) -> Self {
        Self { credential, ..self }
    }

    async fn negotiate_fields(&self, request: &ModelRequest) -> Result<ModelReply, Error> {
        let mut shape = *self.shape.lock().unwrap_or_else(PoisonError::into_inner);
        // Every rejection removes one more field, so this ends.
        loop {
            let body = self
                .format
                .body(&self.model, request, shape)
                .map_err(|field| Error::Reserved { model: self.name.clone(), field })?;
            let response = self.send(&body).await?;
            if response.status().is_success() {
                return self.read_reply(response, request).await;
            }
            let refusal = ModelErrorResponse::read(response).await;
            match shape.after_rejection(self.format, refusal.status, &ProviderErrorBody::parse(&refusal.body), &body) {
                Some(next) => {
                    tracing::debug!(model = self.name, ?next, "the server refused a field");
                    shape = next;
                    *self.shape.lock().unwrap_or_else(PoisonError::into_inner) = next;
                }
                None => return Err(self.status_error(&refusal)),
            }
        }
    }

    async fn send(&self, body: &Value) -> Result<Response, Error> {
        let request = self.client.post(self.url.clone()).headers(self.headers.clone());
        let request = request.header(CONTENT_TYPE, "application/json").body(body.to_string());
        request.send().await.map_err(|source| {
            let (model, host, source) = (self.name.clone(), self.host.clone(), source.without_url());
            if is_untrusted_certificate(&source) {
                Error::Untrusted { model, host, source }
            } else if source.is_connect() {
                Error::Connect { model, host, source }
            } else {
                Error::Lost { model, host, source }
            }
        })
    }

    async fn read_reply(&self, mut response: Response, request: &ModelRequest) -> Result<ModelReply, Error> {
        let headers = response.headers().clone();
        let (bytes, end) = read_body(&mut response, ANSWER_CAP).await;
        let raw_bytes = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        match end {
            ModelBodyEnd::Whole => (),
            ModelBodyEnd::Capped => {
                let cap = u64::try_from(ANSWER_CAP).unwrap_or(u64::MAX);
                return Err(self.bad_answer(AnswerFlaw::TooLarge { cap }, ""));
            }
            ModelBodyEnd::Broken(source) => {
                return Err(Error::Cut { model: self.name.clone(), bytes: raw_bytes, source: source.without_url() });
            }
        }
        let body = String::from_utf8_lossy(&bytes);
        let answer = match self.format.decode_answer(&body, request) {
            Ok(answer) => answer,
            // Some gateways put the provider's error into a successful answer.
            Err(AnswerFlaw::NoChoice) => match embedded_error_status(&body) {
                Some(status) => {
                    return Err(self.status_error(&ModelErrorResponse { status, headers, body: body.into_owned() }));
                }
                None => return Err(self.bad_answer(AnswerFlaw::NoChoice, &body)),
            },
            Err(flaw @ AnswerFlaw::Html) => return Err(self.bad_answer(flaw, &ProviderErrorBody::parse(&body).message)),
            Err(flaw) => return Err(self.bad_answer(flaw, &body)),
        };
        let key = self.key.as_ref();
        Ok(ModelReply {
            text: answer.text,
            usage: answer.usage,
            usage_reported: answer.usage_reported,
            model: answer.model.map_or_else(|| self.model.clone(), |model| safe_excerpt(&model, key)),
            finish: match answer.finish {
                ModelFinishReason::Other(reason) => ModelFinishReason::Other(safe_excerpt(&reason, key)),
                finish => finish,
            },
            raw_bytes,
        })
    }

    fn status_error(&self, refusal: &ModelErrorResponse) -> Error {
        let ModelErrorResponse { status, headers, body } = refusal;
        let text = ProviderErrorBody::parse(body).message;
        let text = if text.is_empty() { body } else { &text };
        let text = match safe_excerpt(text, self.key.as_ref()) {
            text if text.is_empty() => "no reason given".to_owned(),
            text => text,
        };
        let (class, billed) = (classify(*status, headers, body), self.format.is_billed(body));
        Error::Status { model: self.name.clone(), status: *status, class, said: text, billed }
    }

    fn bad_answer(&self, flaw: AnswerFlaw, text: &str) -> Error {
        Error::BadAnswer { model: self.name.clone(), flaw, said: safe_excerpt(text, self.key.as_ref()) }
    }
}

#[async_trait]
impl LanguageModel for RemoteModel {
    fn name(&self) -> &str {
        &self.name
    }

    fn is_remote(&self) -> bool {
        true
    }

    fn audit_target(&self) -> Option<EngineCallTarget> {
        let host = self.url.host_str()?.to_owned();
        let (port, path) = (self.url.port_or_known_default()?, self.url.path().to_owned());
        Some(EngineCallTarget { host, port, path, credential: self.credential.clone() })
    }

    async fn call(&self, request: &ModelRequest, _key: CallKey) -> Result<ModelReply, Error> {
        tokio::time::timeout(request.timeout, self.negotiate_fields(request))
            .await
            .unwrap_or_else(|_| Err(Error::Timeout { model: self.name.clone(), after: request.timeout }))
    }
}

/// An error answer.
struct ModelErrorResponse {
    status: u16,
    headers: HeaderMap,
    body: String,
}

impl ModelErrorResponse {
    async fn read(mut response: Response) -> Self {
        let status = response.status().as_u16();
        let mut headers = response.headers().clone();
        // Reset times are relative to the server's clock; the host's clock is used if the server sends none.
        if !headers.contains_key(DATE)
            && let Ok(now) = jiff::fmt::rfc2822::to_string(&jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC))
            && let Ok(now) = HeaderValue::from_str(&now)
        {
            headers.insert(DATE, now);
        }
        // Half an error body is still an error, so how the body ends does not matter.
        let (bytes, _) = read_body(&mut response, ERROR_CAP).await;
        Self { status, headers, body: String::from_utf8_lossy(&bytes).into_owned() }
    }
}

enum ModelBodyEnd {
    Whole,
    Capped,
    Broken(reqwest::Error),
}

async fn read_body(response: &mut Response, cap: usize) -> (Vec<u8>, ModelBodyEnd) {
    let mut bytes = Vec::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) => {
                let room = cap - bytes.len();
                bytes.extend(chunk.iter().take(room));
                if chunk.len() > room {
                    return (bytes, ModelBodyEnd::Capped);
                }
            }
            Ok(None) => return (bytes, ModelBodyEnd::Whole),
            Err(error) => return (bytes, ModelBodyEnd::Broken(error)),
        }
    }
}

/// Returns the status of an error inside a successful answer.
fn embedded_error_status(body: &str) -> Option<u16> {
    let value: Value = serde_json::from_str(body).ok()?;
    let error = value.get("error").filter(|error| error.is_object() || error.is_string())?;
    let code = error.get("code").and_then(|code| {
        code.as_u64().and_then(|code| u16::try_from(code).ok()).or_else(|| code.as_str()?.parse().ok())
    });
    Some(code.filter(|code| (400..600).contains(code)).unwrap_or(500))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn embedded_statuses() {
        for (body, want) in [
            (r#"{"error":{"code":429,"message":"x"}}"#, Some(429)),
            (r#"{"error":{"code":"502"}}"#, Some(502)),
            (r#"{"error":{"code":"rate_limit_exceeded"}}"#, Some(500)),
            (r#"{"error":{"code":200}}"#, Some(500)),
            (r#"{"error":"x"}"#, Some(500)),
            (r#"{"error":null}"#, None),
            (r#"{"choices":[]}"#, None),
            ("x", None),
        ] {
            assert_eq!(embedded_error_status(body), want, "{body}");
        }
    }

    #[test]
    fn debug_shows_no_secret() {
        let endpoint = RemoteEndpoint {
            name: "zai/glm-4.7".into(),
            model: "glm-4.7".into(),
            wire: ProviderProtocol::Chat,
            base_url: "https://api.z.ai/v4?key=sk-live-123".into(),
            api_version: None,
            key: Some(Secret::new("sk-live-456")),
            scheme: KeyScheme::Key,
        };
        let chat = RemoteModel::new(client(None).unwrap(), endpoint.clone()).unwrap();
        assert_eq!(format!("{chat:?}"), r#"RemoteModel { name: "zai/glm-4.7", host: "api.z.ai", .. }"#);
        let broken = RemoteEndpoint { key: Some(Secret::new("sk-\nlive-456")), ..endpoint };
        let error = RemoteModel::new(client(None).unwrap(), broken).unwrap_err();
        assert_eq!(format!("{error:?}"), r#"Key { model: "zai/glm-4.7" }"#);
    }
}
