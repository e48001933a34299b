//! What a client may do with a connection to a route, and what its keeper may do to all of them.

use std::time::Duration;

use ralph_core::policy::{Mode, Policy};
use ralph_proxy::notice::{Charge, Told};
use ralph_testkit::llm::{Script, Server, Turn};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::routes::{Keys, provider};
use crate::stage::{MODEL, REAL, Stage, World, rich, terms, wait_until};
use crate::wire::{ASKS, Ask, ask, get, post, read, rest};

#[tokio::test]
async fn requests_follow_each_other_on_one_connection() {
    let (server, keys, stage) = provider(Turn::text("good day")).await;
    let call = |wire: Ask| wire.call(keys.phantom(wire), Some(50), wire == Ask::Chat);
    let mut stream = stage.dial().await;
    for wire in ASKS {
        stream.write_all(&call(wire)).await.unwrap();
        assert_eq!(read(&mut stream).await.status, 200, "{wire:?}");
    }
    // All at once, in pieces that end anywhere.
    let all: Vec<u8> = ASKS.into_iter().flat_map(call).collect();
    for piece in all.chunks(71) {
        stream.write_all(piece).await.unwrap();
    }
    for wire in ASKS {
        let got = read(&mut stream).await;
        assert_eq!((got.status, got.whole), (200, true), "{wire:?} {}", got.text());
    }
    // A body in chunks, and one that is asked for first.
    let body = Ask::Messages.body(MODEL, "hi", Some(9), false).to_string();
    let (first, second) = body.split_at(10);
    let chunks = format!("a\r\n{first}\r\n{:x}\r\n{second}\r\n0\r\n\r\n", second.len());
    let key = Ask::Messages.key(keys.phantom(Ask::Messages));
    let words = post("/r/anthropic/v1/messages", &[&key, "Transfer-Encoding: chunked"], chunks.as_bytes());
    stream.write_all(&words).await.unwrap();
    assert_eq!(read(&mut stream).await.status, 200);
    let words = post("/r/anthropic/v1/messages", &[&key, "Expect: 100-continue"], body.as_bytes());
    let (head, body) = words.split_at(words.len() - body.len());
    stream.write_all(head).await.unwrap();
    assert_eq!(read(&mut stream).await.status, 100);
    stream.write_all(body).await.unwrap();
    assert_eq!(read(&mut stream).await.status, 200);
    assert_eq!(server.requests().last().unwrap().header("expect"), None);
    assert_eq!(server.hits(), 10);
    stage.drained().await;
    assert_eq!(stage.notes.calls().len(), 10);
}

#[tokio::test]
async fn what_follows_a_request_is_read_as_strictly() {
    let (server, keys, stage) = provider(Turn::text("ok")).await;
    let good = Ask::Chat.call(keys.phantom(Ask::Chat), None, false);
    for (bad, status) in [
        (&b"POST /r/openai/v1/files HTTP/1.1\nHost: x\n\n"[..], 400),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"GET http://other.test/ HTTP/1.1\r\nHost: elsewhere.test\r\n\r\n", 400),
        (b"\x16\x03\x01", 400),
        (b"GET /r/openai/v1/models HTTP/1.1\r\n\r\n", 400),
    ] {
        let case = String::from_utf8_lossy(bad);
        let mut stream = stage.dial().await;
        stream.write_all(&good).await.unwrap();
        assert_eq!(read(&mut stream).await.status, 200, "{case}");
        let hits = server.hits();
        stream.write_all(bad).await.unwrap();
        assert_eq!(read(&mut stream).await.status, status, "{case}");
        assert_eq!(server.hits(), hits, "{case}");
        // Sent along with a good one it may take that one's answer with it, but goes no further itself.
        let mut stream = stage.dial().await;
        stream.write_all(&[&good, bad].concat()).await.unwrap();
        stream.shutdown().await.unwrap();
        rest(&mut stream).await;
        assert!(server.hits() <= hits + 1, "{case}");
    }
    assert!(server.requests().iter().all(|request| request.path == "/v1/chat/completions"));
}

#[tokio::test]
async fn health_says_no_secret() {
    let (_server, keys, stage) = provider(Turn::text("ok")).await;
    let got = ask(stage.door, &get("GET", "/health", &[])).await;
    assert_eq!(got.json()["mode"], "deny");
    let text = format!("{}{}", got.head, got.text());
    assert!(!text.contains(REAL) && !ASKS.iter().any(|wire| text.contains(keys.phantom(*wire))), "{text}");
    stage.guard.set_policy(Policy::parse(Mode::Open, &[] as &[&str], &[]).unwrap());
    assert_eq!(ask(stage.door, &get("GET", "/health", &[])).await.json()["mode"], "open");
    assert_eq!(ask(stage.door, &get("POST", "/health", &[])).await.status, 400);
}

#[tokio::test]
async fn whoever_dies_is_replaced_and_nothing_is_charged_twice() {
    let slow = Turn::text("one two three four five six").slow(Duration::ZERO, Duration::from_millis(30));
    let server = Server::builder().script(Script::every([slow])).start().await.unwrap();
    let keys = Keys::new();
    let stage = Stage::open(keys.terms(&server.url(), rich()), World::new(&[]));
    let mut streams = Vec::new();
    for wire in ASKS {
        let mut stream = stage.dial().await;
        stream.write_all(&wire.call(keys.phantom(wire), Some(50), true)).await.unwrap();
        let mut first = [0; 40];
        stream.read_exact(&mut first).await.unwrap();
        streams.push(stream);
    }
    stage.guard.fail();
    for stream in &mut streams {
        let left = rest(stream).await;
        assert!(!left.ends_with(b"0\r\n\r\n"), "an answer that was cut has no end");
    }
    let again = |told: &Told| matches!(told, Told::Restarted { .. });
    wait_until("the doors are served again", || stage.notes.all().iter().filter(|told| again(told)).count() == 1).await;
    let got = ask(stage.door, &Ask::Messages.call(keys.phantom(Ask::Messages), Some(50), true)).await;
    assert_eq!((got.status, got.whole), (200, true));
    stage.drained().await;
    wait_until("every call is told", || stage.notes.calls().len() == 5).await;
    let (calls, bill) = (stage.notes.calls(), server.bill());
    // What the clients no longer heard was read to its end, so the count is the provider's own.
    assert!(calls.iter().all(|call| call.charge == Charge::Reported), "{calls:?}");
    assert_eq!((bill.calls, calls.iter().map(|call| call.usage.output).sum::<u64>()), (5, bill.output));
    assert_eq!(stage.ledger.settled().tokens, bill.input + bill.output);
}

/// The end of a sandbox is told by whoever ends it, and by nobody as a death.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_end_is_no_death() {
    for close in [true, false] {
        for _ in 0..50 {
            let Stage { guard, notes, .. } = Stage::open(terms(Vec::new(), rich()), World::new(&[]));
            let end = guard.end();
            assert!(!end.is_reached());
            if close {
                guard.close().await;
            } else {
                drop(guard);
            }
            end.reach().await;
            assert!(end.is_reached());
            assert_eq!(notes.all(), [], "{close}");
        }
    }
}

/// Whoever closes the doors and waits for that has heard everything: what was read on for its count is charged too.
#[tokio::test]
async fn nothing_is_told_after_the_end() {
    let slow = Turn::text("one two three four five six").slow(Duration::ZERO, Duration::from_millis(300));
    let (_server, keys, stage) = provider(slow).await;
    let mut stream = stage.dial().await;
    stream.write_all(&Ask::Messages.call(keys.phantom(Ask::Messages), None, true)).await.unwrap();
    stream.read_exact(&mut [0; 40]).await.unwrap();
    drop(stream);
    stage.guard.close().await;
    let calls = stage.notes.calls();
    assert!(matches!(calls.as_slice(), [call] if call.charge == Charge::Worst), "{calls:?}");
    assert_eq!(stage.ledger.reserved(), ralph_proxy::ledger::Spend::default());
}

#[tokio::test]
async fn a_guard_that_is_dropped_takes_everything_along() {
    let slow = Turn::text("one two three").slow(Duration::ZERO, Duration::from_millis(300));
    let (_server, keys, stage) = provider(slow).await;
    let mut stream = stage.dial().await;
    stream.write_all(&Ask::Messages.call(keys.phantom(Ask::Messages), None, true)).await.unwrap();
    stream.read_exact(&mut [0; 40]).await.unwrap();
    let Stage { guard, door, .. } = stage;
    drop(guard);
    assert!(!rest(&mut stream).await.ends_with(b"0\r\n\r\n"));
    let refused = async || tokio::net::TcpStream::connect(door).await.is_err();
    for _ in 0..200 {
        if refused().await {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the door is still open");
}
