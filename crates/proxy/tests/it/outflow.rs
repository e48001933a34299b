//! Tests of what is sent without inspection: how much, for how long, and the alarm when it is a lot.

use std::net::SocketAddr;
use std::time::Duration;

use ralph_proxy::egress_events::{AlarmKind, EgressEntry, EgressEvent, EgressTunnel};
use ralph_proxy::grant::ProxyGrant;
use ralph_proxy::meter::RouteApi;
use ralph_proxy::sent_bytes_alarm::OutflowMeter;
use ralph_testkit::model_server::{FakeModelScript, FakeModelServer, ScriptedTurn};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::task::AbortOnDropHandle;

use crate::fixture::{
    FakeResolver, GatewayFixture, MODEL, REAL, allowing, key_of, route, unlimited_ledger, wait_until,
};
use crate::http_client::{TestApi, post, request, send_and_read};
use crate::scripted_host::{ScriptedHost, ok};

/// Starts an echo server.
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

fn fixture(address: SocketAddr, limit: Option<u64>) -> GatewayFixture {
    let terms = ProxyGrant { outflow: OutflowMeter::new(limit, 0), ..ProxyGrant::from(allowing(&[FAR])) };
    GatewayFixture::open(terms, FakeResolver::new(&[]).with("far.test", address))
}

/// Opens a tunnel, sends this many bytes through it and waits until they came back.
async fn through(fixture: &GatewayFixture, bytes: usize) -> TcpStream {
    let mut stream = fixture.dial().await;
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

fn tunnels(fixture: &GatewayFixture) -> Vec<EgressTunnel> {
    let tunnel = |event| if let EgressEvent::Tunnel(tunnelled) = event { Some(tunnelled) } else { None };
    fixture.events.all().into_iter().filter_map(tunnel).collect()
}

fn alarms(fixture: &GatewayFixture) -> Vec<AlarmKind> {
    fixture.events.alarms().into_iter().map(|(what, _)| what).collect()
}

#[tokio::test]
async fn the_end_of_a_tunnel_is_reported_however_it_ends() {
    let (address, _serving) = echo().await;
    for end in ["the client hangs up", "the policy changes", "the sandbox ends"] {
        let fixture = fixture(address, None);
        let client = through(&fixture, 300_000).await;
        assert_eq!(tunnels(&fixture), [], "{end}");
        tokio::time::sleep(Duration::from_millis(30)).await;
        let notes = fixture.events.clone();
        match end {
            "the client hangs up" => drop(client),
            "the policy changes" => fixture.proxy.set_policy(allowing(&["other.test"])),
            _ => {
                fixture.proxy.close().await;
                let events = notes.all();
                assert!(events.iter().any(|event| matches!(event, EgressEvent::Tunnel(_))), "{end}: {events:?}");
                continue;
            }
        }
        wait_until("it is reported", || tunnels(&fixture).len() == 1).await;
        let EgressTunnel { entry, host, port, sent, received, took } = tunnels(&fixture).remove(0);
        assert_eq!((entry, host.as_str(), port), (EgressEntry::Connect, "far.test", 7000), "{end}");
        assert_eq!((sent, received), (300_000, 300_000), "{end}");
        assert!(took >= Duration::from_millis(30), "{end}: {took:?}");
    }
}

/// Without a limit the same raises no alarm; with one it does while it happens, once, and nothing is cut.
#[tokio::test]
async fn exceeding_the_limit_raises_one_alarm() {
    let (address, _serving) = echo().await;
    for (limit, want) in [(None, vec![]), (Some(100_000), vec![AlarmKind::OutflowExceeded { limit: 100_000 }])] {
        let fixture = fixture(address, limit);
        drop(through(&fixture, 60_000).await);
        assert_eq!(alarms(&fixture), []);
        let mut second = through(&fixture, 60_000).await;
        assert_eq!(alarms(&fixture), want, "before it ends");
        send(&mut second, 200_000).await;
        drop(through(&fixture, 60_000).await);
        wait_until("all have ended", || tunnels(&fixture).len() == 2).await;
        assert_eq!(alarms(&fixture), want);
    }
}

/// Requests count by what they contain, in any part; model calls are limited by the budget and do not count, but free
/// calls do.
#[tokio::test]
async fn request_bodies_count_and_paid_calls_do_not() {
    let server = FakeModelServer::builder()
        .script(FakeModelScript::for_all_calls([ScriptedTurn::text("ok")]))
        .expect_key(REAL)
        .start()
        .await
        .unwrap();
    let far = ScriptedHost::answering(None, ok(&[], "{}")).await;
    let key = key_of(RouteApi::Anthropic, "A");
    let outflow = OutflowMeter::new(Some(1 << 30), 0);
    let terms = ProxyGrant {
        routes: vec![route("anthropic", RouteApi::Anthropic, &server.url(), Some(&key))],
        ledger: unlimited_ledger(),
        outflow: outflow.clone(),
        ..ProxyGrant::from(allowing(&["far.test:80"]))
    };
    let fixture = GatewayFixture::open(terms, FakeResolver::new(&[]).with("far.test", far.address));
    let key = TestApi::Messages.key(key.phantom());
    let body = TestApi::Messages.body(MODEL, &"x".repeat(5000), Some(9), false).to_string();
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
        let got = send_and_read(fixture.proxy_address, &request).await;
        let counted = outflow.sent() - before;
        assert!((at_least..=at_most).contains(&counted), "{counted} {} {}", got.head, got.text());
    }
}
