//! Tests that answers are passed on as they arrive: not a byte is changed, and none waits for the next.

use std::sync::Arc;

use ralph_core::hash::sha256;
use ralph_proxy::egress_events::ChargeBasis;
use ralph_testkit::model_server::{FakeModelScript, FakeModelServer, ScriptedTurn};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::timeout;

use crate::fixture::{FakeResolver, GatewayFixture, MODEL, TEST_TIMEOUT, unlimited_ledger};
use crate::http_client::{TEST_APIS, TestApi, next_chunk, post, read};
use crate::model_routes::RouteKeys;
use crate::seeded_random::ProxyTestRng;

/// Returns what a provider streams to a call, byte for byte.
async fn scripted(wire: TestApi) -> Vec<u8> {
    let script = FakeModelScript::for_all_calls([ScriptedTurn::text(
        "one two three \"usage\" {\"output_tokens\":0} ü\u{1f600} end",
    )]);
    let server = FakeModelServer::builder().script(script).start().await.unwrap();
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    let mut body = wire.body(MODEL, "hi", Some(50), true);
    if wire == TestApi::Chat {
        body["stream_options"] = serde_json::json!({"include_usage": true});
    }
    stream.write_all(&post(&wire.path(MODEL, true), &[], body.to_string().as_bytes())).await.unwrap();
    let got = read(&mut stream).await;
    assert!(got.status == 200 && got.complete && got.body.len() > 400, "{}", got.text());
    got.body
}

/// Starts a provider that sends a body in the pieces it receives, each as it arrives.
async fn piecewise(mut pieces: mpsc::Receiver<Vec<u8>>) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    // It ends with the sender of the pieces.
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        let mut some = vec![0; 64 * 1024];
        let asked = stream.read(&mut some).await.unwrap();
        assert!(asked > 0);
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        while let Some(piece) = pieces.recv().await {
            let chunk = [format!("{:x}\r\n", piece.len()).as_bytes(), &piece, b"\r\n"].concat();
            if stream.write_all(&chunk).await.is_err() {
                return;
            }
        }
        stream.write_all(b"0\r\n\r\n").await.ok();
    });
    address
}

/// Opens a call over a route to a provider that receives its pieces one by one.
async fn call(wire: TestApi, ask_usage: bool) -> (mpsc::Sender<Vec<u8>>, TcpStream, GatewayFixture) {
    let (hand, pieces) = mpsc::channel(1);
    let address = piecewise(pieces).await;
    let keys = RouteKeys::new();
    let fixture =
        GatewayFixture::open(keys.grant(&format!("http://{address}"), unlimited_ledger()), FakeResolver::new(&[]));
    let mut body = wire.body(MODEL, "hi", Some(50), true);
    if wire == TestApi::Chat && ask_usage {
        body["stream_options"] = serde_json::json!({"include_usage": true});
    }
    let path = format!("/r/{}{}", wire.route(), wire.path(MODEL, true));
    let key = wire.key(keys.phantom(wire));
    let mut stream = fixture.dial().await;
    stream.write_all(&post(&path, &[&key], body.to_string().as_bytes())).await.unwrap();
    (hand, stream, fixture)
}

async fn head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(timeout(TEST_TIMEOUT, stream.read_u8()).await.expect("the head arrives").unwrap());
    }
    String::from_utf8(head).unwrap()
}

#[tokio::test]
async fn not_a_byte_is_changed() {
    let chance = &mut ProxyTestRng::new(7);
    for wire in TEST_APIS {
        let whole = Arc::new(scripted(wire).await);
        for most in [1, 3, 17, 200, 100_000] {
            let (hand, mut stream, fixture) = call(wire, true).await;
            let bytes = Arc::clone(&whole);
            let mut sizes = chance.clone();
            chance.next();
            let sending = tokio::spawn(async move {
                let mut rest = &bytes[..];
                while !rest.is_empty() {
                    let size = usize::try_from(sizes.between(1, most)).unwrap().min(rest.len());
                    hand.send(rest[..size].to_vec()).await.unwrap();
                    rest = &rest[size..];
                }
            });
            let got = read(&mut stream).await;
            sending.await.unwrap();
            assert_eq!((got.status, got.complete), (200, true), "{wire:?} {most}");
            assert_eq!(sha256(&got.body), sha256(&whole), "{wire:?} {most}\n{}", got.text());
            assert_eq!(got.header("content-type"), Some("text/event-stream"));
            fixture.wait_until_settled().await;
            assert_eq!(fixture.events.calls()[0].charge, ChargeBasis::Reported, "{wire:?} {most}");
        }
    }
}

#[tokio::test]
async fn each_event_arrives_before_the_next_is_sent() {
    for (wire, ask_usage) in [
        (TestApi::Messages, true),
        (TestApi::Chat, true),
        (TestApi::Chat, false),
        (TestApi::Responses, true),
        (TestApi::Gemini, true),
    ] {
        let whole = String::from_utf8(scripted(wire).await).unwrap();
        let end = if wire == TestApi::Gemini { "\r\n\r\n" } else { "\n\n" };
        let events: Vec<&str> = whole.split_inclusive(end).collect();
        assert!(events.len() > 5, "{wire:?}");
        let (hand, mut stream, _stage) = call(wire, ask_usage).await;
        assert!(head(&mut stream).await.starts_with("HTTP/1.1 200"), "{wire:?}");
        for event in events {
            hand.send(event.as_bytes().to_vec()).await.unwrap();
            // The one chunk that is dropped for a client that did not request it.
            if !ask_usage && event.contains("\"usage\":{") {
                continue;
            }
            let mut received = String::new();
            while received.len() < event.len() {
                let chunk = timeout(TEST_TIMEOUT, next_chunk(&mut stream)).await;
                let chunk = chunk.unwrap_or_else(|_| panic!("{wire:?} {ask_usage}: {event:?} waits for the next"));
                received.push_str(std::str::from_utf8(&chunk.unwrap()).unwrap());
            }
            assert_eq!(received, event, "{wire:?} {ask_usage}");
        }
        drop(hand);
        assert_eq!(next_chunk(&mut stream).await, Some(vec![]), "{wire:?}");
    }
}

#[tokio::test]
async fn an_event_in_two_halves_is_not_held_back() {
    for wire in [TestApi::Messages, TestApi::Responses, TestApi::Gemini] {
        let (hand, mut stream, _stage) = call(wire, true).await;
        head(&mut stream).await;
        for half in ["data: {\"type\":\"response.", "created\"}\n", "\n", ": a comment", "\n\n"] {
            hand.send(half.as_bytes().to_vec()).await.unwrap();
            let received =
                timeout(TEST_TIMEOUT, next_chunk(&mut stream)).await.expect("half an event arrives").unwrap();
            assert_eq!(received, half.as_bytes(), "{wire:?}");
        }
    }
}
