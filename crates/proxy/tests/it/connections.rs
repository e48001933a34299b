//! Tests of what a client may do with a connection to a route, and of restarting and stopping the listeners.

use std::time::Duration;

use ralph_core::policy::{Policy, PolicyMode};
use ralph_proxy::egress_events::{ChargeBasis, EgressEvent};
use ralph_testkit::model_server::{FakeModelScript, FakeModelServer, ScriptedTurn};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::fixture::{FakeResolver, GatewayFixture, MODEL, REAL, grant, unlimited_ledger, wait_until};
use crate::http_client::{TEST_APIS, TestApi, get, post, read, rest, send_and_read};
use crate::model_routes::{RouteKeys, provider};

#[tokio::test]
async fn requests_follow_each_other_on_one_connection() {
    let (server, keys, fixture) = provider(ScriptedTurn::text("good day")).await;
    let call = |wire: TestApi| wire.call(keys.phantom(wire), Some(50), wire == TestApi::Chat);
    let mut stream = fixture.dial().await;
    for wire in TEST_APIS {
        stream.write_all(&call(wire)).await.unwrap();
        assert_eq!(read(&mut stream).await.status, 200, "{wire:?}");
    }
    // All at once, in pieces that end anywhere.
    let all: Vec<u8> = TEST_APIS.into_iter().flat_map(call).collect();
    for piece in all.chunks(71) {
        stream.write_all(piece).await.unwrap();
    }
    for wire in TEST_APIS {
        let got = read(&mut stream).await;
        assert_eq!((got.status, got.complete), (200, true), "{wire:?} {}", got.text());
    }
    // A body in chunks, and one after `Expect: 100-continue`.
    let body = TestApi::Messages.body(MODEL, "hi", Some(9), false).to_string();
    let (first, second) = body.split_at(10);
    let chunks = format!("a\r\n{first}\r\n{:x}\r\n{second}\r\n0\r\n\r\n", second.len());
    let key = TestApi::Messages.key(keys.phantom(TestApi::Messages));
    let request_bytes = post("/r/anthropic/v1/messages", &[&key, "Transfer-Encoding: chunked"], chunks.as_bytes());
    stream.write_all(&request_bytes).await.unwrap();
    assert_eq!(read(&mut stream).await.status, 200);
    let request_bytes = post("/r/anthropic/v1/messages", &[&key, "Expect: 100-continue"], body.as_bytes());
    let (head, body) = request_bytes.split_at(request_bytes.len() - body.len());
    stream.write_all(head).await.unwrap();
    assert_eq!(read(&mut stream).await.status, 100);
    stream.write_all(body).await.unwrap();
    assert_eq!(read(&mut stream).await.status, 200);
    assert_eq!(server.requests().last().unwrap().header("expect"), None);
    assert_eq!(server.hits(), 10);
    fixture.wait_until_settled().await;
    assert_eq!(fixture.events.calls().len(), 10);
}

#[tokio::test]
async fn the_next_request_is_parsed_as_strictly() {
    let (server, keys, fixture) = provider(ScriptedTurn::text("ok")).await;
    let good = TestApi::Chat.call(keys.phantom(TestApi::Chat), None, false);
    for (bad, status) in [
        (&b"POST /r/openai/v1/files HTTP/1.1\nHost: x\n\n"[..], 400),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"GET http://other.test/ HTTP/1.1\r\nHost: elsewhere.test\r\n\r\n", 400),
        (b"\x16\x03\x01", 400),
        (b"GET /r/openai/v1/models HTTP/1.1\r\n\r\n", 400),
    ] {
        let case = String::from_utf8_lossy(bad);
        let mut stream = fixture.dial().await;
        stream.write_all(&good).await.unwrap();
        assert_eq!(read(&mut stream).await.status, 200, "{case}");
        let hits = server.hits();
        stream.write_all(bad).await.unwrap();
        assert_eq!(read(&mut stream).await.status, status, "{case}");
        assert_eq!(server.hits(), hits, "{case}");
        // Sent along with a valid request it may prevent that one's answer, but is not forwarded itself.
        let mut stream = fixture.dial().await;
        stream.write_all(&[&good, bad].concat()).await.unwrap();
        stream.shutdown().await.unwrap();
        rest(&mut stream).await;
        assert!(server.hits() <= hits + 1, "{case}");
    }
    assert!(server.requests().iter().all(|request| request.path == "/v1/chat/completions"));
}

#[tokio::test]
async fn health_reveals_no_secret() {
    let (_server, keys, fixture) = provider(ScriptedTurn::text("ok")).await;
    let got = send_and_read(fixture.proxy_address, &get("GET", "/health", &[])).await;
    assert_eq!(got.json()["mode"], "deny");
    let text = format!("{}{}", got.head, got.text());
    assert!(!text.contains(REAL) && !TEST_APIS.iter().any(|wire| text.contains(keys.phantom(*wire))), "{text}");
    fixture.proxy.set_policy(Policy::parse(PolicyMode::Open, &[] as &[&str], &[]).unwrap());
    assert_eq!(send_and_read(fixture.proxy_address, &get("GET", "/health", &[])).await.json()["mode"], "open");
    assert_eq!(send_and_read(fixture.proxy_address, &get("POST", "/health", &[])).await.status, 400);
}

#[tokio::test]
async fn failed_listeners_restart_and_nothing_is_charged_twice() {
    let slow = ScriptedTurn::text("one two three four five six").slow(Duration::ZERO, Duration::from_millis(30));
    let server = FakeModelServer::builder().script(FakeModelScript::for_all_calls([slow])).start().await.unwrap();
    let keys = RouteKeys::new();
    let fixture = GatewayFixture::open(keys.grant(&server.url(), unlimited_ledger()), FakeResolver::new(&[]));
    let mut streams = Vec::new();
    for wire in TEST_APIS {
        let mut stream = fixture.dial().await;
        stream.write_all(&wire.call(keys.phantom(wire), Some(50), true)).await.unwrap();
        let mut first = [0; 40];
        stream.read_exact(&mut first).await.unwrap();
        streams.push(stream);
    }
    fixture.proxy.restart();
    for stream in &mut streams {
        let left = rest(stream).await;
        assert!(!left.ends_with(b"0\r\n\r\n"), "an answer that was cut off has no last chunk");
    }
    let again = |event: &EgressEvent| matches!(event, EgressEvent::Restarted { .. });
    wait_until("the listeners are served again", || {
        fixture.events.all().iter().filter(|event| again(event)).count() == 1
    })
    .await;
    let got =
        send_and_read(fixture.proxy_address, &TestApi::Messages.call(keys.phantom(TestApi::Messages), Some(50), true))
            .await;
    assert_eq!((got.status, got.complete), (200, true));
    fixture.wait_until_settled().await;
    wait_until("every call is reported", || fixture.events.calls().len() == 5).await;
    let (calls, bill) = (fixture.events.calls(), server.bill());
    // Answers whose clients were cut off were read to the end, so the usage is the provider's own.
    assert!(calls.iter().all(|call| call.charge == ChargeBasis::Reported), "{calls:?}");
    assert_eq!((bill.calls, calls.iter().map(|call| call.usage.output).sum::<u64>()), (5, bill.output));
    assert_eq!(fixture.ledger.settled().tokens, bill.input + bill.output);
}

/// Stopping a sandbox is not reported as a failure of its listeners.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_is_not_a_failure() {
    for close in [true, false] {
        for _ in 0..50 {
            let GatewayFixture { proxy, events, .. } =
                GatewayFixture::open(grant(Vec::new(), unlimited_ledger()), FakeResolver::new(&[]));
            let end = proxy.shutdown();
            assert!(!end.is_stopped());
            if close {
                proxy.close().await;
            } else {
                drop(proxy);
            }
            end.stop_and_wait().await;
            assert!(end.is_stopped());
            assert_eq!(events.all(), [], "{close}");
        }
    }
}

/// Once closing has returned, everything was reported: answers that were read for their usage are charged too.
#[tokio::test]
async fn nothing_is_reported_after_closing() {
    let slow = ScriptedTurn::text("one two three four five six").slow(Duration::ZERO, Duration::from_millis(300));
    let (_server, keys, fixture) = provider(slow).await;
    let mut stream = fixture.dial().await;
    stream.write_all(&TestApi::Messages.call(keys.phantom(TestApi::Messages), None, true)).await.unwrap();
    stream.read_exact(&mut [0; 40]).await.unwrap();
    drop(stream);
    fixture.proxy.close().await;
    let calls = fixture.events.calls();
    assert!(matches!(calls.as_slice(), [call] if call.charge == ChargeBasis::Worst), "{calls:?}");
    assert_eq!(fixture.ledger.reserved(), ralph_proxy::ledger::LedgerAmount::default());
}

#[tokio::test]
async fn dropping_the_handle_stops_everything() {
    let slow = ScriptedTurn::text("one two three").slow(Duration::ZERO, Duration::from_millis(300));
    let (_server, keys, fixture) = provider(slow).await;
    let mut stream = fixture.dial().await;
    stream.write_all(&TestApi::Messages.call(keys.phantom(TestApi::Messages), None, true)).await.unwrap();
    stream.read_exact(&mut [0; 40]).await.unwrap();
    let GatewayFixture { proxy, proxy_address, .. } = fixture;
    drop(proxy);
    assert!(!rest(&mut stream).await.ends_with(b"0\r\n\r\n"));
    let refused = async || tokio::net::TcpStream::connect(proxy_address).await.is_err();
    for _ in 0..200 {
        if refused().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the listener is still open");
}
