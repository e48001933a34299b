//! What leaves without being looked into: how much, for how long, and who notices when it is a lot.

use std::net::SocketAddr;
use std::time::Duration;

use ralph_proxy::meter::Wire;
use ralph_proxy::notice::{Entry, Told, Tunnelled, Wrong};
use ralph_proxy::outflow::Outflow;
use ralph_proxy::terms::Terms;
use ralph_testkit::llm::{Script, Server, Turn};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

use crate::host::{Host, ok};
use crate::stage::{MODEL, REAL, Stage, World, allowing, key_of, rich, route, wait_until};
use crate::wire::{Ask, ask, post, request};

/// A server that gives back what it is sent.
async fn echo() -> (SocketAddr, AbortOnDropHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (mut reads, mut writes) = stream.split();
                tokio::io::copy(&mut reads, &mut writes).await.ok();
            });
        }
    });
    (address, AbortOnDropHandle::new(serving))
}

const FAR: &str = "far.test:7000";

fn stage(address: SocketAddr, limit: Option<u64>) -> Stage {
    let terms = Terms { outflow: Outflow::new(limit, 0), ..Terms::from(allowing(&[FAR])) };
    Stage::open(terms, World::new(&[]).with("far.test", address))
}

/// Opens a tunnel, sends so much through it and waits until it came back.
async fn through(stage: &Stage, bytes: usize) -> TcpStream {
    let mut stream = stage.dial().await;
    stream.write_all(format!("CONNECT {FAR} HTTP/1.1\r\n\r\n").as_bytes()).await.unwrap();
    let mut yes = [0; 39];
    stream.read_exact(&mut yes).await.unwrap();
    assert!(yes.starts_with(b"HTTP/1.1 200 "));
    send(&mut stream, bytes).await;
    stream
}

async fn send(stream: &mut TcpStream, bytes: usize) {
    let (mut reads, mut writes) = stream.split();
    let (sent, mut back) = (vec![b'x'; bytes], vec![0; bytes]);
    let (written, read) = tokio::join!(writes.write_all(&sent), reads.read_exact(&mut back));
    written.unwrap();
    read.unwrap();
}

fn tunnels(stage: &Stage) -> Vec<Tunnelled> {
    let tunnel = |told| if let Told::Tunnelled(tunnelled) = told { Some(tunnelled) } else { None };
    stage.notes.all().into_iter().filter_map(tunnel).collect()
}

fn alarms(stage: &Stage) -> Vec<Wrong> {
    stage.notes.alarms().into_iter().map(|(what, _)| what).collect()
}

#[tokio::test]
async fn the_end_of_a_tunnel_is_told_however_it_ends() {
    let (address, _serving) = echo().await;
    for end in ["the client hangs up", "the policy changes", "the sandbox ends"] {
        let stage = stage(address, None);
        let client = through(&stage, 300_000).await;
        assert_eq!(tunnels(&stage), [], "{end}");
        tokio::time::sleep(Duration::from_millis(30)).await;
        let notes = stage.notes.clone();
        match end {
            "the client hangs up" => drop(client),
            "the policy changes" => stage.guard.set_policy(allowing(&["other.test"])),
            _ => {
                stage.guard.close().await;
                let told = notes.all();
                assert!(told.iter().any(|told| matches!(told, Told::Tunnelled(_))), "{end}: {told:?}");
                continue;
            }
        }
        wait_until("it is told", || tunnels(&stage).len() == 1).await;
        let Tunnelled { entry, host, port, sent, received, took } = tunnels(&stage).remove(0);
        assert_eq!((entry, host.as_str(), port), (Entry::Connect, "far.test", 7000), "{end}");
        assert_eq!((sent, received), (300_000, 300_000), "{end}");
        assert!(took >= Duration::from_millis(30), "{end}: {took:?}");
    }
}

/// Without a limit the same goes unnoticed; with one it is noticed while it happens, once, and nothing is cut.
#[tokio::test]
async fn much_is_noticed_once() {
    let (address, _serving) = echo().await;
    for (limit, want) in [(None, vec![]), (Some(100_000), vec![Wrong::SentMuch { limit: 100_000 }])] {
        let stage = stage(address, limit);
        drop(through(&stage, 60_000).await);
        assert_eq!(alarms(&stage), []);
        let mut second = through(&stage, 60_000).await;
        assert_eq!(alarms(&stage), want, "before it ends");
        send(&mut second, 200_000).await;
        drop(through(&stage, 60_000).await);
        wait_until("all have ended", || tunnels(&stage).len() == 2).await;
        assert_eq!(alarms(&stage), want);
    }
}

/// Requests count by what they carry, wherever it stands; calls of models are the budget's business, free ones are not.
#[tokio::test]
async fn what_counts() {
    let server = Server::builder().script(Script::every([Turn::text("ok")])).expect_key(REAL).start().await.unwrap();
    let far = Host::saying(None, ok(&[], "{}")).await;
    let key = key_of(Wire::Anthropic, "A");
    let outflow = Outflow::new(Some(1 << 30), 0);
    let terms = Terms {
        routes: vec![route("anthropic", Wire::Anthropic, &server.url(), Some(&key))],
        ledger: rich(),
        outflow: outflow.clone(),
        ..Terms::from(allowing(&["far.test:80"]))
    };
    let stage = Stage::open(terms, World::new(&[]).with("far.test", far.address));
    let key = Ask::Messages.key(key.phantom());
    let body = Ask::Messages.body(MODEL, &"x".repeat(5000), Some(9), false).to_string();
    let long = "y".repeat(5000);
    let put = |path: &str, host: &str, headers: &[&str], body: &[u8]| request("PUT", path, host, headers, Some(body));
    for (request, at_least, at_most) in [
        (post("/r/anthropic/v1/messages", &[&key], body.as_bytes()), 0, 0),
        (post("/r/anthropic/v1/messages/count_tokens", &[&key], body.as_bytes()), 5000, 6000),
        (put("http://far.test/", "far.test", &[], long.as_bytes()), 5000, 6000),
        (put(&format!("http://far.test/{long}"), "far.test", &[], b""), 5000, 6000),
        (put("http://far.test/", "far.test", &[&format!("X-A: {long}")], b""), 5000, 6000),
        (put("http://evil.test/", "evil.test", &[], long.as_bytes()), 0, 0),
    ] {
        let before = outflow.sent();
        let got = ask(stage.door, &request).await;
        let counted = outflow.sent() - before;
        assert!((at_least..=at_most).contains(&counted), "{counted} {} {}", got.head, got.text());
    }
}
