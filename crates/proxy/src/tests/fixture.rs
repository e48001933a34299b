//! A fake network that records which names were resolved and which addresses dialled, and clients that send any
//! bytes.
//!
//! Test names have public addresses, so the address filter works as in production; dialling one of them leads to a
//! recorder on this machine.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ralph_core::policy::{Policy, PolicyMode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use crate::egress_events::{EgressDecision, EgressEvent, EgressObserver};
use crate::limits::ProxyLimits;
use crate::listen::{ListenerSockets, ProxyHandle, serve_with_limits};
use crate::upstream_network::{EgressResolver, ResolverFuture};

pub(super) const PUBLIC: &str = "93.184.215.14";

/// The fake network, and what happened in it.
#[derive(Debug)]
pub(super) struct RecordingResolver {
    names: HashMap<&'static str, Vec<IpAddr>>,
    upstream: SocketAddr,
    queries: Mutex<Vec<String>>,
    dials: Mutex<Vec<String>>,
    heard: Arc<Mutex<Vec<u8>>>,
    _running: AbortOnDropHandle<()>,
}

impl RecordingResolver {
    /// Creates a network whose servers send `banner` first and then echo what they receive; to a request they answer
    /// with what they received.
    pub(super) async fn new(banner: &'static str) -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let upstream = listener.local_addr().unwrap();
        let heard: Arc<Mutex<Vec<u8>>> = Arc::default();
        let recorder = Arc::clone(&heard);
        let running = AbortOnDropHandle::new(tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(server(stream, banner, Arc::clone(&recorder)));
            }
        }));
        let names = [
            ("allowed.test", &[PUBLIC][..]),
            ("other.test", &[PUBLIC]),
            ("inner.test", &["10.0.0.5"]),
            ("loop.test", &["127.0.0.1"]),
            ("meta.test", &["169.254.169.254"]),
            ("mixed.test", &[PUBLIC, "127.0.0.1"]),
            ("mapped.test", &["::ffff:127.0.0.1"]),
            ("wrapped.test", &["::ffff:93.184.215.14"]),
            ("nat64.test", &["64:ff9b::7f00:1"]),
            ("nowhere.test", &[]),
        ];
        let names = names.map(|(name, found)| (name, found.iter().map(|ip| ip.parse().unwrap()).collect()));
        let (queries, dials) = Default::default();
        Arc::new(Self { names: names.into(), upstream, queries, dials, heard, _running: running })
    }

    pub(super) fn queries(&self) -> Vec<String> {
        self.queries.lock().unwrap().clone()
    }

    pub(super) fn dials(&self) -> Vec<String> {
        self.dials.lock().unwrap().clone()
    }

    pub(super) fn received(&self) -> String {
        String::from_utf8_lossy(&self.heard.lock().unwrap()).into_owned()
    }

    #[track_caller]
    pub(super) fn assert_untouched(&self, case: &str) {
        assert_eq!((self.queries(), self.dials(), self.received()), (vec![], vec![], String::new()), "{case}");
    }
}

impl EgressResolver for RecordingResolver {
    fn resolve<'a>(&'a self, host: &'a str) -> ResolverFuture<'a, Vec<IpAddr>> {
        self.queries.lock().unwrap().push(host.to_owned());
        let found = self.names.get(host).cloned().ok_or_else(|| io::ErrorKind::NotFound.into());
        Box::pin(std::future::ready(found))
    }

    fn dial(&self, address: SocketAddr) -> ResolverFuture<'_, TcpStream> {
        self.dials.lock().unwrap().push(address.to_string());
        Box::pin(TcpStream::connect(self.upstream))
    }
}

async fn server(mut stream: TcpStream, banner: &str, heard: Arc<Mutex<Vec<u8>>>) {
    stream.write_all(banner.as_bytes()).await.ok();
    let mut all = Vec::new();
    loop {
        let mut some = vec![0; 4096];
        let n = stream.read(&mut some).await.unwrap_or(0);
        if n == 0 {
            return;
        }
        some.truncate(n);
        heard.lock().unwrap().extend_from_slice(&some);
        all.extend_from_slice(&some);
        let request = all.starts_with(b"GET ") || all.starts_with(b"POST ") || all.starts_with(b"HEAD ");
        if !request {
            stream.write_all(&some).await.ok();
        } else if is_complete_request(&all) {
            let head = "HTTP/1.1 200 OK\r\nConnection: X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\n\
                Proxy-Authenticate: Basic\r\nX-End: 1\r\nContent-Length: 5\r\n\r\n";
            let body: &[u8] = if all.starts_with(b"HEAD ") { b"" } else { b"hello" };
            stream.write_all(&[head.as_bytes(), body].concat()).await.ok();
            return;
        }
    }
}

/// Says whether a request is complete. Bodies in these tests end in a full stop.
fn is_complete_request(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    match text.split_once("\r\n\r\n") {
        Some((head, body)) if head.contains("transfer-encoding") => body.ends_with("0\r\n\r\n"),
        Some((head, body)) => !head.contains("content-length") || body.ends_with('.'),
        None => false,
    }
}

#[derive(Debug, Default)]
pub(super) struct DecisionRecorder(Mutex<Vec<EgressDecision>>);

impl DecisionRecorder {
    pub(super) fn all(&self) -> Vec<EgressDecision> {
        self.0.lock().unwrap().clone()
    }

    /// Returns every decision as one line.
    pub(super) fn lines(&self) -> Vec<String> {
        let line = |decided: EgressDecision| {
            let EgressDecision { entry, host, port, allowed, why, .. } = decided;
            format!("{entry} {host}:{port} {}: {why}", if allowed { "yes" } else { "no" })
        };
        self.all().into_iter().map(line).collect()
    }
}

impl EgressObserver for DecisionRecorder {
    fn observe(&self, event: EgressEvent) {
        let EgressEvent::Decision(decided) = event else { return };
        self.0.lock().unwrap().push(decided);
    }
}

/// One sandbox with an explicit listener and name servers.
pub(super) struct ProxyFixture {
    pub(super) resolver: Arc<RecordingResolver>,
    pub(super) decisions: Arc<DecisionRecorder>,
    pub(super) proxy: ProxyHandle,
    pub(super) proxy_address: SocketAddr,
    pub(super) transparent: SocketAddr,
    pub(super) dns_udp: SocketAddr,
    pub(super) dns_tcp: SocketAddr,
}

pub(super) fn allowing(rules: &[&str]) -> Policy {
    Policy::parse(PolicyMode::Allowlist, rules, &[]).unwrap()
}

impl ProxyFixture {
    pub(super) async fn new(policy: Policy) -> Self {
        Self::with_limits(ProxyLimits::default(), policy, "").await
    }

    pub(super) async fn with_limits(limits: ProxyLimits, policy: Policy, banner: &'static str) -> Self {
        let resolver = RecordingResolver::new(banner).await;
        let decisions = Arc::new(DecisionRecorder::default());
        let listen = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let (explicit, transparent, dns_tcp) = (listen(), listen(), listen());
        let dns_udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = |listener: &std::net::TcpListener| listener.local_addr().unwrap();
        let places = (at(&explicit), at(&transparent), dns_udp.local_addr().unwrap(), at(&dns_tcp));
        let sockets = ListenerSockets {
            explicit: Some(explicit),
            transparent: vec![transparent],
            dns_udp: Some(dns_udp),
            dns_tcp: Some(dns_tcp),
        };
        let guard = serve_with_limits(limits, sockets, policy, resolver.clone(), decisions.clone()).unwrap();
        let (proxy_address, transparent, dns_udp, dns_tcp) = places;
        Self { resolver, decisions, proxy: guard, proxy_address, transparent, dns_udp, dns_tcp }
    }

    pub(super) async fn dial(&self) -> TcpStream {
        TcpStream::connect(self.proxy_address).await.unwrap()
    }

    /// Sends bytes and returns what comes back: as many answers as there were requests, or everything until the end.
    pub(super) async fn exchange(&self, bytes: &[u8]) -> String {
        let mut stream = self.dial().await;
        // The proxy may close a refused connection without reading from it.
        stream.write_all(bytes).await.ok();
        answers_to(&mut stream, bytes).await
    }

    /// Requests a tunnel by `CONNECT`; the text is the answer's status line.
    pub(super) async fn connect(&self, target: &str) -> (TcpStream, String) {
        let mut stream = self.dial().await;
        stream.write_all(format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n").as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            match timeout(TEST_TIMEOUT, stream.read_u8()).await.unwrap() {
                Ok(byte) => answer.push(byte),
                Err(_) => break,
            }
        }
        let text = String::from_utf8_lossy(&answer).into_owned();
        (stream, text.lines().next().unwrap_or_default().to_owned())
    }

    /// Requests a tunnel by SOCKS; the number is the reply code.
    pub(super) async fn socks(&self, host: &[u8], port: u16) -> (TcpStream, u8) {
        let mut stream = self.dial().await;
        stream.write_all(&[5, 1, 0]).await.unwrap();
        let mut hello = [0; 2];
        stream.read_exact(&mut hello).await.unwrap();
        assert_eq!(hello, [5, 0]);
        let length = u8::try_from(host.len()).unwrap();
        let ask = [&[5, 1, 0, 3, length], host, &port.to_be_bytes()].concat();
        stream.write_all(&ask).await.unwrap();
        let mut answer = [0; 10];
        timeout(TEST_TIMEOUT, stream.read_exact(&mut answer)).await.unwrap().unwrap();
        (stream, answer[1])
    }

    /// Queries the name server; the numbers are the response code and how many addresses it returned.
    pub(super) async fn query_dns(&self, query: &[u8]) -> (u8, u8, Vec<u8>) {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        socket.send_to(query, self.dns_udp).await.unwrap();
        let mut answer = vec![0; 4096];
        let n = timeout(TEST_TIMEOUT, socket.recv(&mut answer)).await.unwrap().unwrap();
        answer.truncate(n);
        (answer[3] & 15, answer[7], answer)
    }
}

/// A test that waits this long has failed.
pub(super) const TEST_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns what comes back: as many answers as there were requests among the bytes, or everything until the end.
pub(super) async fn answers_to(stream: &mut TcpStream, bytes: &[u8]) -> String {
    let requests = String::from_utf8_lossy(bytes).matches(" HTTP/1.1\r\n").count();
    let mut all = Vec::new();
    while requests == 0 || answers(&all) < requests {
        match timeout(TEST_TIMEOUT, stream.read_buf(&mut all)).await.expect("an answer arrives") {
            Ok(1..) => (),
            Ok(0) | Err(_) => break,
        }
    }
    String::from_utf8_lossy(&all).into_owned()
}

/// Counts the complete answers among the bytes that came back.
fn answers(bytes: &[u8]) -> usize {
    let text = String::from_utf8_lossy(bytes);
    let mut rest: &str = &text;
    let mut found = 0;
    while let Some((head, after)) = rest.split_once("\r\n\r\n") {
        let lower = head.to_ascii_lowercase();
        let length = lower.split_once("content-length: ").and_then(|(_, rest)| rest.lines().next()?.parse().ok());
        let Some(below) = after.get(length.unwrap_or(0)..) else { break };
        found += usize::from(!head.contains(" 100 Continue"));
        rest = below;
    }
    found
}

/// Returns everything that still comes, until the other side closes.
pub(super) async fn rest(stream: &mut TcpStream) -> String {
    let mut all = Vec::new();
    // A reset is an end as well.
    timeout(TEST_TIMEOUT, stream.read_to_end(&mut all)).await.expect("the connection ends").ok();
    String::from_utf8_lossy(&all).into_owned()
}

/// Returns the next bytes, exactly as many as wanted.
pub(super) async fn next(stream: &mut TcpStream, n: usize) -> Vec<u8> {
    let mut some = vec![0; n];
    timeout(TEST_TIMEOUT, stream.read_exact(&mut some)).await.expect("an answer arrives").unwrap();
    some
}
