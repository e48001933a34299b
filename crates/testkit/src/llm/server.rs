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

use super::authority::Authority;
use super::body::Pieces;
use super::play::{Played, object, plain, play};
use super::script::{Script, TakenBy, Turn};
use super::tally::Bill;
use super::wire::{Asked, Call, Wire, asked};

const LARGEST_REQUEST: usize = 32 * 1024 * 1024;
const HANDSHAKE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(20);

/// A model server that lives as long as this value.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    names: Vec<String>,
    authority: Option<Authority>,
    shared: Arc<Shared>,
    stop: CancellationToken,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// A request as it arrived.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Received {
    pub method: String,
    pub path: String,
    pub query: Option<String>,
    /// Names in lower case; a name that came twice is here twice.
    pub headers: Vec<(String, String)>,
    pub body: Bytes,
    pub peer: SocketAddr,
    pub http2: bool,
}

impl Received {
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
pub struct Builder {
    script: Script,
    tls: Option<Vec<String>>,
    http2: bool,
    key: Option<String>,
    headers: Vec<(String, String)>,
    most_requests: usize,
    lifetime: Duration,
}

impl Builder {
    /// What it says; without one, every call is answered with a short text.
    pub fn script(mut self, script: Script) -> Self {
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
    pub async fn start(self) -> io::Result<Server> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let (authority, acceptor) = match &self.tls {
            Some(names) => {
                let authority = Authority::new()?;
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                let protocols: &[&[u8]] = if self.http2 { &[b"h2", b"http/1.1"] } else { &[b"http/1.1"] };
                let acceptor = TlsAcceptor::from(authority.server(&names, protocols)?);
                (Some(authority), Some(acceptor))
            }
            None => (None, None),
        };
        let shared = Arc::new(Shared {
            script: self.script,
            key: self.key,
            headers: self.headers,
            most_requests: self.most_requests,
            hits: AtomicUsize::new(0),
            log: Mutex::default(),
        });
        let stop = CancellationToken::new();
        let serving = listen(listener, acceptor, Arc::clone(&shared), stop.clone());
        let ends = stop.clone();
        // It ends by itself: with the value, or when its time is up.
        tokio::spawn(async move {
            ends.run_until_cancelled(timeout(self.lifetime, serving)).await;
            ends.cancel();
        });
        Ok(Server { address, names: self.tls.unwrap_or_default(), authority, shared, stop })
    }
}

impl Server {
    pub fn builder() -> Builder {
        Builder {
            script: Script::new([]),
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
        self.authority.as_ref().map(Authority::pem).unwrap_or_default()
    }

    /// Every request that was read to its end, in that order.
    pub fn requests(&self) -> Vec<Received> {
        self.shared.log().requests.clone()
    }

    /// What it has generated so far, by its own count.
    pub fn bill(&self) -> Bill {
        self.shared.log().bill
    }

    /// How many requests have begun.
    pub fn hits(&self) -> usize {
        self.shared.hits.load(Ordering::SeqCst)
    }
}

#[derive(Debug)]
struct Shared {
    script: Script,
    key: Option<String>,
    headers: Vec<(String, String)>,
    most_requests: usize,
    hits: AtomicUsize,
    log: Mutex<Log>,
}

#[derive(Debug, Default)]
struct Log {
    requests: Vec<Received>,
    bill: Bill,
    /// How many turns were taken, and how many calls were answered at all.
    turns: usize,
    calls: usize,
}

impl Shared {
    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn listen(listener: TcpListener, tls: Option<TlsAcceptor>, shared: Arc<Shared>, stop: CancellationToken) {
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            sleep(PAUSE).await;
            continue;
        };
        // Only speed is lost without it.
        stream.set_nodelay(true).ok();
        let (tls, shared) = (tls.clone(), Arc::clone(&shared));
        // Ends with the server at the latest.
        tokio::spawn(stop.clone().run_until_cancelled_owned(converse(stream, peer, tls, shared)));
    }
}

async fn converse(stream: TcpStream, peer: SocketAddr, tls: Option<TlsAcceptor>, shared: Arc<Shared>) {
    let Some(tls) = tls else { return http1(stream, peer, shared).await };
    let Ok(Ok(stream)) = timeout(HANDSHAKE, tls.accept(stream)).await else { return };
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        let answer = service_fn(move |request| answer(request, peer, Arc::clone(&shared)));
        let serving = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        // A client that leaves is no failure of the server's.
        serving.serve_connection(TokioIo::new(stream), answer).await.ok();
    } else {
        http1(stream, peer, shared).await;
    }
}

async fn http1(stream: impl AsyncRead + AsyncWrite + Unpin + Send, peer: SocketAddr, shared: Arc<Shared>) {
    let answer = service_fn(move |request| answer(request, peer, Arc::clone(&shared)));
    let mut serving = hyper::server::conn::http1::Builder::new();
    serving.timer(TokioTimer::new());
    // A client that leaves is no failure of the server's.
    serving.serve_connection(TokioIo::new(stream), answer).await.ok();
}

async fn answer(
    request: Request<Incoming>,
    peer: SocketAddr,
    shared: Arc<Shared>,
) -> Result<Response<Pieces>, Infallible> {
    let hit = shared.hits.fetch_add(1, Ordering::SeqCst);
    if hit >= shared.most_requests {
        return Ok(respond(plain(508, "text/plain", b"too many requests for one test".into(), Duration::ZERO), &[]));
    }
    let (parts, body) = request.into_parts();
    let Ok(body) = Limited::new(body, LARGEST_REQUEST).collect().await else {
        return Ok(respond(object(400, &json!({"error": "the body could not be read"})), &[]));
    };
    let body = body.to_bytes();
    let value: Value = serde_json::from_slice(&body).unwrap_or_default();
    let headers: Vec<(String, String)> = parts
        .headers
        .iter()
        .map(|(name, value)| (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned()))
        .collect();
    let seen = headers.iter().map(|(name, value)| format!("{name}: {value}")).collect::<Vec<_>>().join("\n");
    let received = Received {
        method: parts.method.to_string(),
        path: parts.uri.path().to_owned(),
        query: parts.uri.query().map(str::to_owned),
        headers,
        body,
        peer,
        http2: parts.version == Version::HTTP_2,
    };
    let asked = asked(&parts.method, &parts.uri, &parts.headers, &value);
    let known = shared.key.as_ref().is_none_or(|key| brings(key, &parts.headers, parts.uri.query()));
    let played = {
        let mut log = shared.log();
        log.requests.push(received);
        reply(&shared, &mut log, asked, known, &seen)
    };
    sleep(played.before).await;
    Ok(respond(played, &shared.headers))
}

/// Decides the answer, and puts it on the bill at once.
fn reply(shared: &Shared, log: &mut Log, asked: Asked, known: bool, seen: &str) -> Played {
    let refused = |wire: Wire, status, kind, message| object(status, &wire.error(status, kind, message));
    let call = match asked {
        Asked::Greeting => return plain(200, "text/plain", Vec::new(), Duration::ZERO),
        Asked::Upgrade(wire) => return refused(wire, 426, "upgrade_required", "there are no websockets here"),
        Asked::Nothing(wire) => return refused(wire, 404, wire.not_found(), "there is nothing here"),
        Asked::Models(wire) | Asked::Count(wire, _) | Asked::Call(Call { wire, .. }) if !known => {
            return refused(wire, 401, wire.unauthorised(), "invalid key");
        }
        Asked::Models(wire) => return object(200, &wire.models()),
        Asked::Count(wire, tokens) => return object(200, &wire.count(tokens)),
        Asked::Call(call) => call,
    };
    let takes = call.offers_tools || shared.script.taken_by == TakenBy::Every;
    let turn = takes.then(|| {
        let at = log.turns;
        log.turns += 1;
        shared.script.turns.get(at).or(shared.script.turns.last()).cloned()
    });
    let turn = turn.flatten().unwrap_or_else(|| Turn::text("ok"));
    log.calls += 1;
    let played = play(&turn, &call, log.calls, seen);
    if let Some(tokens) = played.billed {
        log.bill.add(tokens);
    }
    played
}

/// Says whether a request brings the key, and no other, where its wire has a place for one.
fn brings(key: &str, headers: &HeaderMap, query: Option<&str>) -> bool {
    let plain = ["x-api-key", "x-goog-api-key"].into_iter().flat_map(|name| headers.get_all(name));
    let bearer = headers.get_all("authorization").into_iter();
    let told = plain
        .map(|value| value.as_bytes().to_vec())
        .chain(bearer.map(|value| value.as_bytes().strip_prefix(b"Bearer ").unwrap_or_default().to_vec()));
    let pairs = query.unwrap_or_default().split('&').filter_map(|pair| pair.strip_prefix("key="));
    let mut keys = told.chain(pairs.map(|value| value.as_bytes().to_vec())).peekable();
    keys.peek().is_some() && keys.all(|one| one == key.as_bytes())
}

fn respond(played: Played, more: &[(String, String)]) -> Response<Pieces> {
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
