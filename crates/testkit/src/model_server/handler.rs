//! Answers one request: records it, and plays the turn or the behaviour that is due.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Request, Response, StatusCode, Version};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::sleep;

use super::behaviour::{ModelBehaviour, not_found};
use super::billing::ServerBill;
use super::connection::FaultControl;
use super::reply::{FakeModelReply, json_reply, plain_reply, reply_to_turn};
use super::reply_body::ReplyBody;
use super::script::{FakeModelScript, ScriptedTurn, TurnConsumer};
use super::server::FakeModelRequest;
use super::wire::{FakeModelCall, FakeModelWire, ParsedModelRequest, parse_request};

const LARGEST_REQUEST: usize = 32 * 1024 * 1024;

/// How the server answers: by a script or by behaviours.
#[derive(Debug, Clone)]
pub(super) enum ServerPlay {
    Script(FakeModelScript),
    /// One for each request; the last one repeats.
    Behaviours(Vec<ModelBehaviour>),
}

#[derive(Debug)]
pub(super) struct FakeServerState {
    pub(super) play: ServerPlay,
    pub(super) key: Option<String>,
    pub(super) headers: Vec<(String, String)>,
    pub(super) most_requests: usize,
    pub(super) has_timers: bool,
    pub(super) hits: AtomicUsize,
    /// How many valid answers of behaviours were sent to their last byte.
    pub(super) answered: Arc<AtomicUsize>,
    /// How many requests were left without an answer so far.
    pub(super) unanswered: watch::Sender<usize>,
    pub(super) log: Mutex<FakeServerLog>,
}

#[derive(Debug, Default)]
pub(super) struct FakeServerLog {
    pub(super) requests: Vec<FakeModelRequest>,
    pub(super) bill: ServerBill,
    /// How many turns were played, and how many calls were answered at all.
    pub(super) turns: usize,
    pub(super) calls: usize,
}

impl FakeServerState {
    pub(super) fn log(&self) -> MutexGuard<'_, FakeServerLog> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The client's address, and control over its connection.
#[derive(Debug, Clone)]
pub(super) struct ConnectedClient {
    pub(super) peer: SocketAddr,
    pub(super) control: FaultControl,
}

pub(super) async fn handle_request(
    request: Request<Incoming>,
    client: ConnectedClient,
    shared: Arc<FakeServerState>,
) -> Result<Response<ReplyBody>, Infallible> {
    let hit = shared.hits.fetch_add(1, Ordering::SeqCst);
    if hit >= shared.most_requests {
        return Ok(respond(
            plain_reply(508, "text/plain", b"too many requests for one test".into(), Duration::ZERO),
            &[],
        ));
    }
    let (parts, body) = request.into_parts();
    let Ok(body) = Limited::new(body, LARGEST_REQUEST).collect().await else {
        return Ok(respond(json_reply(400, &json!({"error": "the body could not be read"})), &[]));
    };
    let body = body.to_bytes();
    let value: Value = serde_json::from_slice(&body).unwrap_or_default();
    let headers: Vec<(String, String)> = parts
        .headers
        .iter()
        .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
        .collect();
    let seen = headers.iter().map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>().join("\n");
    let received = FakeModelRequest {
        method: parts.method.to_string(),
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().map(str::to_owned),
        headers,
        body,
        peer: client.peer,
        http2: parts.version == Version::HTTP_2,
    };
    let asked = parse_request(&parts.method, &parts.uri, &parts.headers, &value);
    let known = shared.key.as_ref().is_none_or(|key| has_key(key, &parts.headers, parts.uri.query()));
    let played = {
        let mut log = shared.log();
        let turn = log.requests.len();
        log.requests.push(received);
        match &shared.play {
            ServerPlay::Script(script) => Some(decide_reply(script, &mut log, asked, known, &seen)),
            ServerPlay::Behaviours(all) => {
                play_behaviour(&shared, all.get(turn).or(all.last()), &asked, &value, &client.control)
            }
        }
    };
    let Some(played) = played else {
        // The connection stays open until the client or the server ends.
        return std::future::pending().await;
    };
    if played.before > Duration::ZERO {
        sleep(played.before).await;
    }
    Ok(respond(played, &shared.headers))
}

/// Returns what a behaviour sends; `None` where the request is left without an answer.
fn play_behaviour(
    shared: &FakeServerState,
    behaviour: Option<&ModelBehaviour>,
    asked: &ParsedModelRequest,
    body: &Value,
    control: &FaultControl,
) -> Option<FakeModelReply> {
    let (Some(behaviour), ParsedModelRequest::Call(call)) = (behaviour, asked) else { return Some(not_found()) };
    if behaviour.leaves_unanswered() {
        shared.unanswered.send_modify(|unanswered| *unanswered += 1);
    }
    behaviour.reply(call, call.wire.wants_json(body), control, &shared.answered)
}

/// Decides the answer, and bills it at once.
fn decide_reply(
    script: &FakeModelScript,
    log: &mut FakeServerLog,
    asked: ParsedModelRequest,
    known: bool,
    seen: &str,
) -> FakeModelReply {
    let refused = |wire: FakeModelWire, status, kind, message| json_reply(status, &wire.error(status, kind, message));
    let call = match asked {
        ParsedModelRequest::HealthProbe => return plain_reply(200, "text/plain", Vec::new(), Duration::ZERO),
        ParsedModelRequest::WebsocketUpgrade(wire) => {
            return refused(wire, 426, "upgrade_required", "there are no websockets here");
        }
        ParsedModelRequest::NotFound(wire) => return refused(wire, 404, wire.not_found(), "there is nothing here"),
        ParsedModelRequest::Models(wire)
        | ParsedModelRequest::Count(wire, _)
        | ParsedModelRequest::Call(FakeModelCall { wire, .. })
            if !known =>
        {
            return refused(wire, 401, wire.unauthorised(), "invalid key");
        }
        ParsedModelRequest::Models(wire) => return json_reply(200, &wire.models()),
        ParsedModelRequest::Count(wire, tokens) => return json_reply(200, &wire.count(tokens)),
        ParsedModelRequest::Call(call) => call,
    };
    let takes = call.offers_tools || script.consumed_by == TurnConsumer::AllCalls;
    let turn = takes.then(|| {
        let at = log.turns;
        log.turns += 1;
        script.turns.get(at).or(script.turns.last()).cloned()
    });
    let turn = turn.flatten().unwrap_or_else(|| ScriptedTurn::text("ok"));
    log.calls += 1;
    let played = reply_to_turn(&turn, &call, log.calls, seen);
    if let Some(tokens) = played.billed {
        log.bill.add(tokens);
    }
    played
}

/// Returns whether a request has the key, and no other, where its wire format has a place for one.
fn has_key(key: &str, headers: &HeaderMap, query: Option<&str>) -> bool {
    let plain = ["x-api-key", "x-goog-api-key"].into_iter().flat_map(|name| headers.get_all(name));
    let bearer = headers.get_all("authorization").into_iter();
    let in_headers = plain
        .map(|value| value.as_bytes().to_vec())
        .chain(bearer.map(|value| value.as_bytes().strip_prefix(b"Bearer ").unwrap_or_default().to_vec()));
    let pairs = query.unwrap_or_default().split('&').filter_map(|pair| pair.strip_prefix("key="));
    let mut keys = in_headers.chain(pairs.map(|value| value.as_bytes().to_vec())).peekable();
    keys.peek().is_some() && keys.all(|one| one == key.as_bytes())
}

fn respond(played: FakeModelReply, more: &[(String, String)]) -> Response<ReplyBody> {
    let mut response = Response::new(played.body);
    *response.status_mut() = StatusCode::from_u16(played.status).unwrap_or(StatusCode::IM_A_TEAPOT);
    let mut put = |name: &str, value: &str| {
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::try_from(value)) {
            response.headers_mut().append(name, value);
        }
    };
    put(CONTENT_TYPE.as_str(), &played.content_type);
    for (name, value) in more.iter().chain(&played.headers) {
        put(name, value);
    }
    response
}
