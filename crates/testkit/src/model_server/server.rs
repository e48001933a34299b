//! Listens on a port of this host, records every request, and ends when its value is dropped.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::behaviour::ModelBehaviour;
use super::billing::ServerBill;
use super::connection::{FaultControl, FaultyConnection};
use super::handler::{ConnectedClient, FakeServerState, ServerPlay, handle_request};
use super::script::FakeModelScript;
use super::test_ca::TestCa;

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

    /// Returns the body, or null when it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// A server that is not started yet.
#[derive(Debug, Clone)]
pub struct FakeModelServerBuilder {
    play: ServerPlay,
    tls: Option<Vec<String>>,
    http2: bool,
    key: Option<String>,
    headers: Vec<(String, String)>,
    most_requests: usize,
    /// `None` where the test controls the clock, which it may pause and advance.
    lifetime: Option<Duration>,
}

impl FakeModelServerBuilder {
    /// Sets the script; without one, every call is answered with a short text.
    pub fn script(mut self, script: FakeModelScript) -> Self {
        self.play = ServerPlay::Script(script);
        self
    }

    /// Answers the n-th request by the n-th behaviour and later ones by the last, and sends nothing that they do not
    /// name. It runs without a timer of its own, for tests that stop the clock.
    pub fn behaviours(mut self, behaviours: impl IntoIterator<Item = ModelBehaviour>) -> Self {
        self.play = ServerPlay::Behaviours(behaviours.into_iter().collect());
        self.headers.clear();
        self.lifetime = None;
        self
    }

    /// Serves TLS under these names and addresses; the first is the one in its URL.
    pub fn tls(mut self, names: &[&str]) -> Self {
        self.tls = Some(names.iter().map(ToString::to_string).collect());
        self
    }

    /// Offers only HTTP/1.1, over TLS too.
    pub fn http1_only(mut self) -> Self {
        self.http2 = false;
        self
    }

    /// Refuses calls with another key, in whichever header the wire has for it.
    pub fn expect_key(mut self, key: &str) -> Self {
        self.key = Some(key.to_owned());
        self
    }

    /// Sends a header with every answer.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the most requests that are answered (10 000).
    pub fn most_requests(mut self, most: usize) -> Self {
        self.most_requests = most;
        self
    }

    /// Sets how long it runs at most (ten minutes).
    pub fn lifetime(mut self, lifetime: Duration) -> Self {
        self.lifetime = Some(lifetime);
        self
    }

    /// Starts the server on a free port of this host, within the caller's runtime.
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
            play: self.play,
            key: self.key,
            headers: self.headers,
            most_requests: self.most_requests,
            has_timers: self.lifetime.is_some(),
            hits: AtomicUsize::new(0),
            answered: Arc::default(),
            unanswered: watch::Sender::new(0),
            log: Mutex::default(),
        });
        let stop = CancellationToken::new();
        let serving = accept_loop(listener, acceptor, Arc::clone(&shared), stop.clone());
        let ends = stop.clone();
        // The task ends by itself: when the value is dropped, or when its lifetime is over.
        tokio::spawn(async move {
            match self.lifetime {
                Some(lifetime) => {
                    ends.run_until_cancelled(timeout(lifetime, serving)).await;
                }
                None => {
                    ends.run_until_cancelled(serving).await;
                }
            }
            ends.cancel();
        });
        Ok(FakeModelServer { address, names: self.tls.unwrap_or_default(), authority, shared, stop })
    }
}

impl FakeModelServer {
    pub fn builder() -> FakeModelServerBuilder {
        FakeModelServerBuilder {
            play: ServerPlay::Script(FakeModelScript::new([])),
            tls: None,
            http2: true,
            key: None,
            headers: vec![("request-id".to_owned(), "req_scripted".to_owned())],
            most_requests: 10_000,
            lifetime: Some(Duration::from_mins(10)),
        }
    }

    /// Starts a server that misbehaves: see [`FakeModelServerBuilder::behaviours`].
    pub async fn with_behaviours(behaviours: impl IntoIterator<Item = ModelBehaviour>) -> io::Result<Self> {
        Self::builder().behaviours(behaviours).start().await
    }

    /// Returns the address on which it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL of its root, without a slash at the end.
    pub fn url(&self) -> String {
        match self.names.first() {
            Some(name) => format!("https://{name}:{}", self.address.port()),
            None => format!("http://{}", self.address),
        }
    }

    /// Returns the base URL for an OpenAI client.
    pub fn base_url(&self) -> String {
        format!("{}/v1", self.url())
    }

    /// Returns the certificate of the authority that signed its own; empty without TLS.
    pub fn ca_pem(&self) -> String {
        self.authority.as_ref().map(TestCa::pem).unwrap_or_default()
    }

    /// Returns every request that was read to its end, in that order.
    pub fn requests(&self) -> Vec<FakeModelRequest> {
        self.shared.log().requests.clone()
    }

    /// Returns what it has generated so far, by its own count.
    pub fn bill(&self) -> ServerBill {
        self.shared.log().bill
    }

    /// Returns how many valid answers of behaviours were sent to their last byte: what a provider certainly bills.
    pub fn answered(&self) -> usize {
        self.shared.answered.load(Ordering::SeqCst)
    }

    /// Waits until one more request than `before` has been left without an answer, and returns how many there are.
    pub async fn wait_for_unanswered(&self, before: usize) -> usize {
        let mut unanswered = self.shared.unanswered.subscribe();
        // The sender lives in `self`, so waiting cannot fail.
        unanswered.wait_for(|now| *now > before).await.map_or(before, |now| *now)
    }

    /// Returns how many requests have begun.
    pub fn hits(&self) -> usize {
        self.shared.hits.load(Ordering::SeqCst)
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
        // Without it the connection is only slower.
        stream.set_nodelay(true).ok();
        let (tls, shared) = (tls.clone(), Arc::clone(&shared));
        let stream = FaultyConnection { stream, control: FaultControl::default() };
        // Ends with the server at the latest.
        tokio::spawn(stop.clone().run_until_cancelled_owned(serve_connection(stream, peer, tls, shared)));
    }
}

async fn serve_connection(
    stream: FaultyConnection,
    peer: SocketAddr,
    tls: Option<TlsAcceptor>,
    shared: Arc<FakeServerState>,
) {
    let client = ConnectedClient { peer, control: stream.control.clone() };
    let Some(tls) = tls else { return serve_http1(stream, client, shared).await };
    let Ok(Ok(stream)) = timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)).await else { return };
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        let answer = service_fn(move |request| handle_request(request, client.clone(), Arc::clone(&shared)));
        let serving = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        // A client that leaves is no failure of the server's.
        serving.serve_connection(TokioIo::new(stream), answer).await.ok();
    } else {
        serve_http1(stream, client, shared).await;
    }
}

async fn serve_http1(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send,
    client: ConnectedClient,
    shared: Arc<FakeServerState>,
) {
    let has_timers = shared.has_timers;
    let answer = service_fn(move |request| handle_request(request, client.clone(), Arc::clone(&shared)));
    let mut serving = hyper::server::conn::http1::Builder::new();
    if has_timers {
        serving.timer(TokioTimer::new());
    }
    // A client that leaves is no failure of the server's.
    serving.serve_connection(TokioIo::new(stream), answer).await.ok();
}
