//! Tests of clients that use as many connections, and as much time and memory, as they can get. Only their own
//! sandbox may be affected.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use ralph_core::money::MicroUsd;
use ralph_proxy::egress_events::{DecisionReason, EgressEvent};
use ralph_proxy::ledger::{Ledger, LedgerAmount};
use ralph_proxy::limits::ProxyLimits;
use ralph_testkit::model_server::{FakeModelServer, ScriptedTurn};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::fixture::{FakeResolver, GatewayFixture, MODEL, TEST_TIMEOUT, allowing, caps, unlimited_ledger, wait_until};
use crate::http_client::{TestApi, get, post, read, rest, send_and_read};
use crate::model_routes::{RouteKeys, provider};
use crate::scripted_host::{ScriptedHost, ok};

/// Short enough to wait for in a test.
fn short_limits() -> ProxyLimits {
    let soon = Duration::from_millis(300);
    ProxyLimits { head_time: soon, body_time: soon, ..ProxyLimits::default() }
}

/// Counts the connections that were refused for a reason.
fn refused(fixture: &GatewayFixture, why: &DecisionReason) -> usize {
    let so = |event: &EgressEvent| matches!(event, EgressEvent::Decision(decided) if decided.why == *why);
    fixture.events.all().iter().filter(|event| so(event)).count()
}

#[tokio::test]
async fn clients_that_are_slow_to_send_are_cut_off() {
    let fixture = GatewayFixture::with_limits(short_limits(), allowing(&["git.test"]).into(), FakeResolver::new(&[]));
    let connect = "CONNECT git.test:443 HTTP/1.1\r\n";
    let cases: [(SocketAddr, &[u8]); 9] = [
        (fixture.proxy_address, b""),
        (fixture.proxy_address, b"G"),
        (fixture.proxy_address, b"GET /health HTTP/1.1\r\nHost: x\r\nA: "),
        (fixture.proxy_address, connect.as_bytes()),
        (fixture.proxy_address, &[5]),
        (fixture.proxy_address, &[5, 1, 0, 5, 1, 0, 3, 200, b'x']),
        (fixture.transparent, b""),
        (fixture.dns, &[0]),
        (fixture.dns, &[0, 200, 1, 2, 3]),
    ];
    for (proxy_address, request) in cases {
        let mut stream = TcpStream::connect(proxy_address).await.unwrap();
        stream.write_all(request).await.unwrap();
        // Sending a byte now and then gains no time.
        let (mut reads, mut writes) = stream.split();
        let drip = async {
            for _ in 0..60 {
                sleep(Duration::from_millis(100)).await;
                if !request.is_empty() && writes.write_all(b"A").await.is_err() {
                    break;
                }
            }
            std::future::pending::<()>().await;
        };
        let begun = Instant::now();
        let mut all = Vec::new();
        tokio::select! {
            end = timeout(TEST_TIMEOUT, reads.read_to_end(&mut all)) => drop(end.expect("the connection ends")),
            () = drip => (),
        }
        assert!(begun.elapsed() < Duration::from_secs(5), "{request:?} {:?}", begun.elapsed());
    }
    wait_until("it is reported", || refused(&fixture, &DecisionReason::ClientTimeout) >= 5).await;
}

#[tokio::test]
async fn a_body_that_does_not_arrive_times_out() {
    let server = FakeModelServer::builder().start().await.unwrap();
    let keys = RouteKeys::new();
    let fixture = GatewayFixture::with_limits(
        short_limits(),
        keys.grant(&server.url(), unlimited_ledger()),
        FakeResolver::new(&[]),
    );
    let request = TestApi::Messages.call(keys.phantom(TestApi::Messages), None, false);
    let mut stream = fixture.dial().await;
    stream.write_all(&request[..request.len() - 3]).await.unwrap();
    let got = read(&mut stream).await;
    assert_eq!((got.status, server.hits()), (400, 0), "{}", got.text());
    assert_eq!(fixture.ledger.reserved(), LedgerAmount::default());
}

#[tokio::test]
async fn endless_and_enormous_heads_are_refused() {
    let fixture =
        GatewayFixture::with_limits(ProxyLimits::default(), allowing(&["git.test"]).into(), FakeResolver::new(&[]));
    let long = format!("A: {}", "x".repeat(1 << 20));
    let many = vec!["A: b"; 97];
    for (request, status) in [
        (get("GET", "/health", &[&long]), 431),
        (get("GET", &format!("/{}", "x".repeat(1 << 20)), &[]), 431),
        (get("GET", "/health", &many), 400),
        (get("GET", "/health", &many[..90]), 200),
    ] {
        assert_eq!(send_and_read(fixture.proxy_address, &request).await.status, status);
    }
    // Headers without an end: the proxy ends the connection, long before the client would.
    let mut stream = fixture.dial().await;
    stream.write_all(b"GET /health HTTP/1.1\r\nHost: x\r\n").await.unwrap();
    let mut sent = 0;
    while stream.write_all(&b"A: 0123456789012345678901234567890123456789\r\n".repeat(50)).await.is_ok() {
        sent += 1;
        assert!(sent < 20_000, "the proxy reads all of it");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_connections_of_one_sandbox_do_not_delay_another() {
    let (server, keys, busy) = provider(ScriptedTurn::text("ok")).await;
    let (_quiet_server, quiet_keys, quiet) = provider(ScriptedTurn::text("ok")).await;
    let (connections, mut idle) = (2000, Vec::new());
    for n in 0..connections {
        idle.push(TcpStream::connect(busy.proxy_address).await.unwrap());
        // Refused connections are closed now and then: a process has a limited number of files.
        if n % 100 == 99 && n > 256 {
            wait_until("they are refused", || refused(&busy, &DecisionReason::TooManyConnections) == n + 1 - 256).await;
            idle.truncate(256);
        }
    }
    wait_until("most of them are refused", || refused(&busy, &DecisionReason::TooManyConnections) >= connections - 256)
        .await;
    assert_eq!(
        refused(&busy, &DecisionReason::TooManyConnections),
        connections - 256,
        "exactly that many are accepted"
    );
    // The next client is refused with that reason.
    let got = send_and_read(busy.proxy_address, &TestApi::Chat.call(keys.phantom(TestApi::Chat), None, false)).await;
    assert!(got.status == 503 || got.status == 0, "{}", got.text());
    assert_eq!(server.hits(), 0);
    let begun = Instant::now();
    for _ in 0..20 {
        let got =
            send_and_read(quiet.proxy_address, &TestApi::Chat.call(quiet_keys.phantom(TestApi::Chat), None, false))
                .await;
        assert_eq!(got.status, 200);
    }
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    // When they close, connections are accepted again.
    drop(idle);
    wait_for_room(&busy, &TestApi::Chat.call(keys.phantom(TestApi::Chat), None, false)).await;
}

/// A parsed body takes far more memory than its text, so few are parsed at the same time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn long_bodies_are_parsed_one_after_the_other() {
    let server = FakeModelServer::builder().start().await.unwrap();
    let keys = RouteKeys::new();
    let nothing = Ledger::new(caps(1, 1), MicroUsd::ZERO, 0);
    let fixture = GatewayFixture::open(keys.grant(&server.url(), nothing), FakeResolver::new(&[]));
    fixture.events.slow.store(true, Ordering::Relaxed);
    let key = TestApi::Chat.key(keys.phantom(TestApi::Chat));
    let body = TestApi::Chat.body(MODEL, &"x".repeat(300 << 10), None, false).to_string();
    let request = Arc::new(post("/r/openai/v1/chat/completions", &[&key], body.as_bytes()));
    let mut asking = JoinSet::new();
    for _ in 0..10 {
        let (proxy_address, request) = (fixture.proxy_address, Arc::clone(&request));
        asking.spawn(async move { send_and_read(proxy_address, &request).await });
    }
    for got in asking.join_all().await {
        assert!(got.text().contains("budget spent"), "{}", got.text());
    }
    let most = fixture.events.most_open.load(Ordering::SeqCst);
    assert!((1..=2).contains(&most), "{most} at the same time");
    assert_eq!(server.hits(), 0);
}

/// Returns a call whose body comes in chunks, without the last one unless it is whole.
fn in_chunks(keys: &RouteKeys, prompt: &str, whole: bool) -> Vec<u8> {
    let key = TestApi::Chat.key(keys.phantom(TestApi::Chat));
    let body = TestApi::Chat.body(MODEL, prompt, Some(9), false).to_string();
    let end = if whole { "0\r\n\r\n" } else { "" };
    let chunks = format!("{:x}\r\n{body}\r\n{end}", body.len());
    post("/r/openai/v1/chat/completions", &[&key, "Transfer-Encoding: chunked"], chunks.as_bytes())
}

/// The length of a chunked body is unknown until it has arrived.
#[tokio::test]
async fn unused_buffer_space_is_released() {
    let host = ScriptedHost::start(None, |request| {
        let slow = request.text().contains("think for long");
        if slow { Vec::new() } else { vec![ok(&["Content-Type: application/json"], "{}")] }
    })
    .await;
    let keys = RouteKeys::new();
    let fixture = GatewayFixture::open(
        keys.grant(&format!("http://{}", host.address), unlimited_ledger()),
        FakeResolver::new(&[]),
    );
    let mut thinking = Vec::new();
    for n in 1..=4 {
        let mut stream = fixture.dial().await;
        stream.write_all(&in_chunks(&keys, "think for long", true)).await.unwrap();
        wait_until("it is asked", || host.requests().len() == n).await;
        thinking.push(stream);
    }
    let got = send_and_read(fixture.proxy_address, &in_chunks(&keys, "be quick", true)).await;
    assert_eq!(got.status, 200, "{}", got.text());
}

/// A client that finds no buffer space is told to retry, not that its request is wrong.
#[tokio::test]
async fn a_lack_of_buffer_space_is_retryable() {
    let (server, keys) = (FakeModelServer::builder().start().await.unwrap(), RouteKeys::new());
    let limits = ProxyLimits { buffer_wait_time: Duration::from_millis(200), ..ProxyLimits::default() };
    let fixture =
        GatewayFixture::with_limits(limits, keys.grant(&server.url(), unlimited_ledger()), FakeResolver::new(&[]));
    let mut arriving = Vec::new();
    for _ in 0..2 {
        let mut stream = fixture.dial().await;
        stream.write_all(&in_chunks(&keys, "never whole", false)).await.unwrap();
        arriving.push(stream);
    }
    let request = TestApi::Chat.call(keys.phantom(TestApi::Chat), Some(9), false);
    let mut got = send_and_read(fixture.proxy_address, &request).await;
    // The two may have arrived later than this one.
    for _ in 0..20 {
        if got.status == 200 {
            got = send_and_read(fixture.proxy_address, &request).await;
        }
    }
    assert_eq!((got.status, got.header("x-should-retry")), (503, None), "{}", got.text());
    assert!(got.text().contains("ralph: the other calls of this sandbox use all the buffer space"), "{}", got.text());
    drop(arriving);
    wait_for_room(&fixture, &request).await;
}

async fn wait_for_room(fixture: &GatewayFixture, request: &[u8]) {
    for _ in 0..100 {
        if send_and_read(fixture.proxy_address, request).await.status == 200 {
            return;
        }
        sleep(Duration::from_millis(20)).await;
    }
    panic!("there is no buffer space, though all clients left");
}

#[tokio::test]
async fn an_idle_tunnel_ends() {
    let soon = Duration::from_millis(200);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let network = FakeResolver::new(&[]).with("quiet.test", listener.local_addr().unwrap());
    let limits = ProxyLimits { idle_time: soon, ..ProxyLimits::default() };
    let fixture = GatewayFixture::with_limits(limits, allowing(&["quiet.test:22"]).into(), network);
    let mut stream = fixture.dial().await;
    stream.write_all(b"CONNECT quiet.test:22 HTTP/1.1\r\n\r\n").await.unwrap();
    let all = rest(&mut stream).await;
    assert!(all.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&all));
}
