//! The server: listens on a port of this host, remembers every request, and ends with its value.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, Version};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::billing::ServerBill;
use super::reply::{FakeModelReply, json_reply, plain_reply, reply_to_turn};
use super::reply_body::ReplyBody;
use super::script::{FakeModelScript, ScriptedTurn, TurnConsumer};
use super::test_ca::TestCa;
use super::wire::{FakeModelCall, FakeModelWire, ParsedModelRequest, parse_request};

const LARGEST_REQUEST: usize = 32 * 1024 * 1024;
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
const ACCEPT_RETRY_PAUSE: Duration = Duration::from_millis(20);

/// A model server that lives as long as this value.
#[derive(Debug)]
pub struct FakeModelServer {
    address: SocketAddr,
    names: Vec<String>,
    authority: Option<TestCa>,
    shared: Arc<FakeServerState>,
    stop: CancellationToken,
}

impl Drop for FakeModelServer {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// A request as it arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FakeModelRequest {
    pub method: String,
    pub path: String,
    pub query: Option<String>,
    /// Names in lower case; a name that came twice is here twice.
    pub headers: Vec<(String, String)>,
    pub body: Bytes,
    pub peer: SocketAddr,
    pub http2: bool,
}

impl FakeModelRequest {
    /// Returns a header by its lower-case name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// The body, or null when it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// A server that is not started yet.
#[derive(Debug, Clone)]
pub struct FakeModelServerBuilder {
    script: FakeModelScript,
    tls: Option<Vec<String>>,
    http2: bool,
    key: Option<String>,
    headers: Vec<(String, String)>,
    most_requests: usize,
    lifetime: Duration,
}

impl FakeModelServerBuilder {
    /// What it says; without one, every call is answered with a short text.
    pub fn script(mut self, script: FakeModelScript) -> Self {
        self.script = script;
        self
    }

    /// Speaks TLS under these names and addresses; the first is the one in its URL.
    pub fn tls(mut self, names: &[&str]) -> Self {
        self.tls = Some(names.iter().map(ToString::to_string).collect());
        self
    }

    /// Offers HTTP/1.1 alone, over TLS too.
    pub fn http1_only(mut self) -> Self {
        self.http2 = false;
        self
    }

    /// Refuses calls that bring another key, in whichever header the wire has for it.
    pub fn expect_key(mut self, key: &str) -> Self {
        self.key = Some(key.to_owned());
        self
    }

    /// Sends a header with every answer.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The most requests that are answered (10 000).
    pub fn most_requests(mut self, most: usize) -> Self {
        self.most_requests = most;
        self
    }

    /// How long it lives at most (ten minutes).
    pub fn lifetime(mut self, lifetime: Duration) -> Self {
        self.lifetime = lifetime;
        self
    }

    /// Starts on a free port of this host, within the runtime of the caller.
    pub async fn start(self) -> io::Result<FakeModelServer> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let (authority, acceptor) = match &self.tls {
            Some(names) => {
                let authority = TestCa::new()?;
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                let protocols: &[&[u8]] = if self.http2 { &[b"h2", b"http/1.1"] } else { &[b"http/1.1"] };
                let acceptor = TlsAcceptor::from(authority.server_config(&names, protocols)?);
                (Some(authority), Some(acceptor))
            }
            None => (None, None),
        };
        let shared = Arc::new(FakeServerState {
            script: self.script,
            key: self.key,
            headers: self.headers,
            most_requests: self.most_requests,
            hits: AtomicUsize::new(0),
            log: Mutex::default(),
        });
        let stop = CancellationToken::new();
        let serving = accept_loop(listener, acceptor, Arc::clone(&shared), stop.clone());
        let ends = stop.clone();
        // It ends by itself: with the value, or when its time is up.
        tokio::spawn(async move {
            ends.run_until_cancelled(timeout(self.lifetime, serving)).await;
            ends.cancel();
        });
        Ok(FakeModelServer { address, names: self.tls.unwrap_or_default(), authority, shared, stop })
    }
}

impl FakeModelServer {
    pub fn builder() -> FakeModelServerBuilder {
        FakeModelServerBuilder {
            script: FakeModelScript::new([]),
            tls: None,
            http2: true,
            key: None,
            headers: Vec::new(),
            most_requests: 10_000,
            lifetime: Duration::from_mins(10),
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The URL of its root, without a slash at the end.
    pub fn url(&self) -> String {
        match self.names.first() {
            Some(name) => format!("https://{name}:{}", self.address.port()),
            None => format!("http://{}", self.address),
        }
    }

    /// The certificate of the authority that vouches for it; empty without TLS.
    pub fn ca_pem(&self) -> String {
        self.authority.as_ref().map(TestCa::pem).unwrap_or_default()
    }

    /// Every request that was read to its end, in that order.
    pub fn requests(&self) -> Vec<FakeModelRequest> {
        self.shared.log().requests.clone()
    }

    /// What it has generated so far, by its own count.
    pub fn bill(&self) -> ServerBill {
        self.shared.log().bill
    }

    /// How many requests have begun.
    pub fn hits(&self) -> usize {
        self.shared.hits.load(Ordering::SeqCst)
    }
}

#[derive(Debug)]
struct FakeServerState {
    script: FakeModelScript,
    key: Option<String>,
    headers: Vec<(String, String)>,
    most_requests: usize,
    hits: AtomicUsize,
    log: Mutex<FakeServerLog>,
}

#[derive(Debug, Default)]
struct FakeServerLog {
    requests: Vec<FakeModelRequest>,
    bill: ServerBill,
    /// How many turns were taken, and how many calls were answered at all.
    turns: usize,
    calls: usize,
}

impl FakeServerState {
    fn log(&self) -> MutexGuard<'_, FakeServerLog> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn accept_loop(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    shared: Arc<FakeServerState>,
    stop: CancellationToken,
) {
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            sleep(ACCEPT_RETRY_PAUSE).await;
            continue;
        };
        // Only speed is lost without it.
        stream.set_nodelay(true).ok();
        let (tls, shared) = (tls.clone(), Arc::clone(&shared));
        // Ends with the server at the latest.
        tokio::spawn(stop.clone().run_until_cancelled_owned(serve_connection(stream, peer, tls, shared)));
    }
}

async fn serve_connection(stream: TcpStream, peer: SocketAddr, tls: Option<TlsAcceptor>, shared: Arc<FakeServerState>) {
    let Some(tls) = tls else { return serve_http1(stream, peer, shared).await };
    let Ok(Ok(stream)) = timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await else { return };
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        let answer = service_fn(move |request| handle_request(request, peer, Arc::clone(&shared)));
        let serving = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        // A client that leaves is no failure of the server's.
        serving.serve_connection(TokioIo::new(stream), answer).await.ok();
    } else {
        serve_http1(stream, peer, shared).await;
    }
}

async fn serve_http1(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send,
    peer: SocketAddr,
    shared: Arc<FakeServerState>,
) {
    let answer = service_fn(move |request| handle_request(request, peer, Arc::clone(&shared)));
    let mut serving = hyper::server::conn::http1::Builder::new();
    serving.timer(TokioTimer::new());
    // A client that leaves is no failure of the server's.
    serving.serve_connection(TokioIo::new(stream), answer).await.ok();
}

async fn handle_request(
    request: Request<Incoming>,
    peer: SocketAddr,
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
        peer,
        http2: parts.version == Version::HTTP_2,
    };
    let asked = parse_request(&parts.method, &parts.uri, &parts.headers, &value);
    let known = shared.key.as_ref().is_none_or(|key| has_key(key, &parts.headers, parts.uri.query()));
    let played = {
        let mut log = shared.log();
        log.requests.push(received);
        decide_reply(&shared, &mut log, asked, known, &seen)
    };
    sleep(played.before).await;
    Ok(respond(played, &shared.headers))
}

/// Decides the answer, and puts it on the bill at once.
fn decide_reply(
    shared: &FakeServerState,
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
    let takes = call.offers_tools || shared.script.consumed_by == TurnConsumer::AllCalls;
    let turn = takes.then(|| {
        let at = log.turns;
        log.turns += 1;
        shared.script.turns.get(at).or(shared.script.turns.last()).cloned()
    });
    let turn = turn.flatten().unwrap_or_else(|| ScriptedTurn::text("ok"));
    log.calls += 1;
    let played = reply_to_turn(&turn, &call, log.calls, seen);
    if let Some(tokens) = played.billed {
        log.bill.add(tokens);
    }
    played
}

/// Says whether a request brings the key, and no other, where its wire has a place for one.
fn has_key(key: &str, headers: &HeaderMap, query: Option<&str>) -> bool {
    let plain = ["x-api-key", "x-goog-api-key"].into_iter().flat_map(|name| headers.get_all(name));
    let bearer = headers.get_all("authorization").into_iter();
    let told = plain
        .map(|value| value.as_bytes().to_vec())
        .chain(bearer.map(|value| value.as_bytes().strip_prefix(b"Bearer ").unwrap_or_default().to_vec()));
    let pairs = query.unwrap_or_default().split('&').filter_map(|pair| pair.strip_prefix("key="));
    let mut keys = told.chain(pairs.map(|value| value.as_bytes().to_vec())).peekable();
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
    put("request-id", "req_scripted");
    for (name, value) in more.iter().chain(&played.headers) {
        put(name, value);
    }
    response
}
