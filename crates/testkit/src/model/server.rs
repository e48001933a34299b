//! The server: plays behaviours in order, the last one for ever, and remembers every request.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, DefaultBodyLimit, Request, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, HeaderValue, Response, StatusCode};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::ModelBehaviour;
use super::connection::{ConnectionFault, FaultyConnectionControl, FaultyListener};
use super::paced_body::PacedBody;
use super::wire::FaultyModelWire;

/// Enough for any test; a client that loops for ever is refused, not remembered.
const MOST_REQUESTS: usize = 10_000;
const LARGEST_REQUEST: usize = 16 * 1024 * 1024;
/// Enough of an answer for the headers and some of the body, never for all of it: see `faulty`.
const PARTIAL_BYTES: usize = 400;

/// A model server that lives as long as this value.
#[derive(Debug)]
pub struct FaultyModelServer {
    address: SocketAddr,
    shared: Arc<FaultyServerState>,
    /// Dropping it ends the server and whatever still hangs on it.
    _stop: watch::Sender<()>,
}

/// A request as it arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultyModelRequest {
    pub method: String,
    /// With the query.
    pub path: String,
    pub headers: Vec<(String, String)>,
    /// The body, or null when it was not JSON.
    pub body: Value,
}

impl FaultyModelRequest {
    /// Returns a header by its lower-case name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

#[derive(Debug)]
struct FaultyServerState {
    behaviours: Vec<ModelBehaviour>,
    received: Mutex<Vec<FaultyModelRequest>>,
    /// How many fine answers were sent to their last byte.
    answered: Arc<AtomicUsize>,
    /// How many requests were left without an answer so far.
    unanswered: watch::Sender<usize>,
    stopped: watch::Receiver<()>,
}

impl FaultyModelServer {
    /// Starts on a free port. The n-th request meets the n-th behaviour, later ones the last.
    pub async fn start(behaviours: impl IntoIterator<Item = ModelBehaviour>) -> io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let (stop, stopped) = watch::channel(());
        let shared = Arc::new(FaultyServerState {
            behaviours: behaviours.into_iter().collect(),
            received: Mutex::default(),
            answered: Arc::default(),
            unanswered: watch::Sender::new(0),
            stopped: stopped.clone(),
        });
        let app = Router::new()
            .fallback(handle_request)
            .layer(DefaultBodyLimit::max(LARGEST_REQUEST))
            .with_state(shared.clone())
            .into_make_service_with_connect_info::<FaultyConnectionControl>();
        let server = axum::serve(FaultyListener(listener), app).with_graceful_shutdown(wait_until_stopped(stopped));
        // The task ends by itself when `stop` is dropped, and with it every connection.
        tokio::spawn(async move { server.await });
        Ok(Self { address, shared, _stop: stop })
    }

    /// The base URL for a client.
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Every request so far, in order of arrival.
    pub fn requests(&self) -> Vec<FaultyModelRequest> {
        self.shared.received.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many fine answers were sent to their last byte: what a provider bills for sure.
    pub fn answered(&self) -> usize {
        self.shared.answered.load(Ordering::SeqCst)
    }

    /// Waits until one more request than `before` has been left without an answer, and returns how many there are.
    pub async fn wait_for_unanswered(&self, before: usize) -> usize {
        let mut silent = self.shared.unanswered.subscribe();
        // The sender lives in `self`, so waiting cannot fail.
        silent.wait_for(|now| *now > before).await.map_or(before, |now| *now)
    }
}

async fn wait_until_stopped(mut stopped: watch::Receiver<()>) {
    // Nothing is ever sent: the error that the sender is gone is the signal.
    while stopped.changed().await.is_ok() {}
}

async fn handle_request(
    State(shared): State<Arc<FaultyServerState>>,
    ConnectInfo(connection): ConnectInfo<FaultyConnectionControl>,
    request: Request,
) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, LARGEST_REQUEST).await.unwrap_or_default();
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    let received = FaultyModelRequest {
        method: parts.method.to_string(),
        path: parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default(),
        headers: parts
            .headers
            .iter()
            .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
            .collect(),
        body: body.clone(),
    };
    let turn = {
        let mut all = shared.received.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MOST_REQUESTS {
            return text_response(508, "too many requests for one test".into());
        }
        all.push(received);
        all.len() - 1
    };
    let wire = FaultyModelWire::of(parts.uri.path()).filter(|_| parts.method == "POST");
    let behaviour = shared.behaviours.get(turn).or(shared.behaviours.last());
    match (behaviour, wire) {
        (Some(behaviour), Some(wire)) => {
            let model = FaultyModelWire::model(parts.uri.path(), &body);
            let asked = FaultyModelCall { wire, model, wants_json: wire.wants_json(&body) };
            respond(behaviour.clone(), &asked, &connection, &shared).await
        }
        _ => text_response(404, json!({"detail": "Not Found"}).to_string()),
    }
}

/// What an answer depends on.
struct FaultyModelCall {
    wire: FaultyModelWire,
    model: String,
    wants_json: bool,
}

impl FaultyModelCall {
    fn answer(&self, content: &str, usage: &Value) -> String {
        self.wire.answer(&self.model, content, usage)
    }

    /// An answer long enough that `PARTIAL_BYTES` of it is not the whole.
    fn long_response(&self) -> Response<Body> {
        raw_response(200, "application/json", self.answer(&"x".repeat(2 * PARTIAL_BYTES), &honest_usage()))
    }
}

fn honest_usage() -> Value {
    json!({"prompt_tokens": 12, "completion_tokens": 5})
}

async fn respond(
    behaviour: ModelBehaviour,
    asked: &FaultyModelCall,
    connection: &FaultyConnectionControl,
    shared: &FaultyServerState,
) -> Response<Body> {
    let fine = |content: &str, usage: &Value, pieces: usize, pause: Duration| {
        let answered = Arc::clone(&shared.answered);
        let whole = move || {
            answered.fetch_add(1, Ordering::SeqCst);
        };
        let body = PacedBody::new(asked.answer(content, usage), pieces, pause, whole);
        let mut response = raw_response(200, "application/json", String::new());
        *response.body_mut() = Body::new(body);
        response
    };
    match behaviour {
        ModelBehaviour::Ok { content, usage } => fine(&content, &usage, 1, Duration::ZERO),
        ModelBehaviour::Status { code, body, headers } => {
            let mut response = text_response(code, body);
            for (name, value) in headers {
                if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
                    response.headers_mut().insert(name, value);
                }
            }
            response
        }
        ModelBehaviour::Raw { body, content_type } => raw_response(200, &content_type, body),
        ModelBehaviour::Slow { content, delay } => {
            tokio::time::sleep(delay).await;
            fine(&content, &honest_usage(), 1, Duration::ZERO)
        }
        ModelBehaviour::PacedChunks { content, pieces, pause } => fine(&content, &honest_usage(), pieces, pause),
        ModelBehaviour::Hang => {
            shared.unanswered.send_modify(|silent| *silent += 1);
            wait_until_stopped(shared.stopped.clone()).await;
            text_response(503, String::new())
        }
        ModelBehaviour::Stall => {
            shared.unanswered.send_modify(|silent| *silent += 1);
            // Owned by the connection: it is let go when the server ends.
            let (connection, stopped) = (connection.clone(), shared.stopped.clone());
            connection.set(ConnectionFault::Stall(PARTIAL_BYTES));
            tokio::spawn(async move {
                wait_until_stopped(stopped).await;
                connection.set(ConnectionFault::Cut(0));
            });
            asked.long_response()
        }
        ModelBehaviour::Cut => {
            connection.set(ConnectionFault::Cut(PARTIAL_BYTES));
            asked.long_response()
        }
        ModelBehaviour::Reset => {
            connection.set(ConnectionFault::Reset);
            text_response(503, String::new())
        }
        ModelBehaviour::Huge { bytes } => fine(&"x".repeat(bytes), &honest_usage(), 1, Duration::ZERO),
        ModelBehaviour::NoJsonMode { content } => {
            if asked.wants_json {
                let message = "'response_format' of type 'json_object' is not supported with this model.";
                let error = json!({"error": {"message": message, "type": "invalid_request_error",
                    "param": "response_format", "code": null}});
                raw_response(400, "application/json", error.to_string())
            } else {
                fine(&content, &honest_usage(), 1, Duration::ZERO)
            }
        }
    }
}

fn text_response(code: u16, body: String) -> Response<Body> {
    raw_response(code, "text/plain; charset=utf-8", body)
}

fn raw_response(code: u16, content_type: &str, body: String) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::IM_A_TEAPOT);
    if let Ok(content_type) = HeaderValue::try_from(content_type) {
        response.headers_mut().insert(CONTENT_TYPE, content_type);
    }
    response
}
