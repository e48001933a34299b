//! Tests of tunnels: what they may begin with, and what ends them.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ralph_core::egress::{AccessRequest, EgressTarget};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::sync::Notify;

use super::fixture::{DecisionRecorder, PUBLIC, ProxyFixture, allowing, answers_to, next, rest};
use crate::connection_context::ConnectionContext;
use crate::egress_events::EgressEntry;
use crate::inspect::client_hello::tests::hello;
use crate::limits::ProxyLimits;
use crate::upstream_network::{EgressResolver, ResolverFuture};

#[tokio::test]
async fn a_hello_with_the_right_name_is_relayed() {
    let fixture = ProxyFixture::new(allowing(&["allowed.test"])).await;
    let first = hello(Some("allowed.test"));
    let (by_connect, status) = fixture.connect("allowed.test:443").await;
    assert_eq!(status, "HTTP/1.1 200 Connection established");
    let (by_socks, code) = fixture.socks(b"allowed.test", 443).await;
    assert_eq!(code, 0);
    for mut stream in [by_connect, by_socks] {
        stream.write_all(&first).await.unwrap();
        assert_eq!(next(&mut stream, first.len()).await, first);
        stream.write_all(b"anything").await.unwrap();
        assert_eq!(next(&mut stream, 8).await, b"anything");
        stream.shutdown().await.unwrap();
        assert_eq!(rest(&mut stream).await, "");
    }
    assert_eq!(
        fixture.decisions.lines(),
        ["connect allowed.test:443 yes: rule `allowed.test`", "socks allowed.test:443 yes: rule `allowed.test`"]
    );
    assert_eq!(fixture.decisions.all()[0].address, Some(PUBLIC.parse().unwrap()));
}

#[tokio::test]
async fn bytes_sent_along_with_the_request_are_not_lost() {
    let fixture = ProxyFixture::new(allowing(&["allowed.test"])).await;
    let first = hello(Some("allowed.test"));
    let mut stream = fixture.dial().await;
    stream.write_all(&[b"CONNECT allowed.test:443 HTTP/1.1\r\n\r\n", &first[..]].concat()).await.unwrap();
    let answer = next(&mut stream, 39 + first.len()).await;
    assert!(answer.ends_with(&first));
}

#[tokio::test]
async fn other_protocols_on_443_are_cut_before_a_byte_is_relayed() {
    for (first, why) in [
        (hello(Some("other.test")), "the TLS hello names `other.test`"),
        (hello(None), "the TLS hello names no host"),
        (b"SSH-2.0-x\r\n".to_vec(), "port 443 carries only TLS"),
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "port 443 carries only TLS"),
        (vec![22, 3, 1, 0, 0], "port 443 carries only TLS"),
    ] {
        // The server speaks first; the client must not receive it.
        let fixture =
            ProxyFixture::with_limits(ProxyLimits::default(), allowing(&["allowed.test", "other.test"]), "banner")
                .await;
        for (mut stream, _) in
            [fixture.connect("allowed.test:443").await, (fixture.socks(b"allowed.test", 443).await.0, String::new())]
        {
            stream.write_all(&first).await.unwrap();
            assert_eq!(rest(&mut stream).await, "", "{why}");
        }
        assert_eq!(fixture.resolver.received(), "", "{why}");
        assert_eq!(fixture.decisions.lines()[2], format!("connect allowed.test:443 no: {why}"));
        assert_eq!(fixture.decisions.lines()[3], format!("socks allowed.test:443 no: {why}"));
    }
}

#[tokio::test]
async fn on_other_ports_the_server_may_speak_first() {
    let fixture = ProxyFixture::with_limits(ProxyLimits::default(), allowing(&["allowed.test:22"]), "banner").await;
    let (mut stream, _) = fixture.connect("allowed.test:22").await;
    assert_eq!(next(&mut stream, 6).await, b"banner");
    stream.write_all(b"SSH-2.0").await.unwrap();
    assert_eq!(next(&mut stream, 7).await, b"SSH-2.0");

    let (mut liar, _) = fixture.connect("allowed.test:22").await;
    liar.write_all(&hello(Some("other.test"))).await.unwrap();
    rest(&mut liar).await;
    assert_eq!(fixture.resolver.received(), "SSH-2.0");
}

#[tokio::test]
async fn port_80_is_inspected() {
    let fixture = ProxyFixture::new(allowing(&["allowed.test:80"])).await;
    let (mut stream, _) = fixture.connect("allowed.test:80").await;
    let bytes = b"GET /x HTTP/1.1\r\nHost: allowed.test\r\n\r\n";
    stream.write_all(bytes).await.unwrap();
    assert!(answers_to(&mut stream, bytes).await.starts_with("HTTP/1.1 200 OK\r\n"));
    let before = (fixture.resolver.queries(), fixture.resolver.dials(), fixture.resolver.received());
    for (bytes, want) in [
        ("GET / HTTP/1.1\r\nHost: other.test\r\n\r\n", "HTTP/1.1 400 "),
        ("GET http://other.test/ HTTP/1.1\r\nHost: other.test\r\n\r\n", "HTTP/1.1 400 "),
        ("CONNECT other.test:443 HTTP/1.1\r\nHost: allowed.test\r\n\r\n", "HTTP/1.1 400 "),
        ("SSH-2.0-x\r\n\r\n", "HTTP/1.1 400 "),
    ] {
        let (mut stream, _) = fixture.socks(b"allowed.test", 80).await;
        stream.write_all(bytes.as_bytes()).await.unwrap();
        let answer = answers_to(&mut stream, bytes.as_bytes()).await;
        assert!(answer.starts_with(want), "{bytes} {answer}");
    }
    assert_eq!((fixture.resolver.queries(), fixture.resolver.dials(), fixture.resolver.received()), before);
}

#[tokio::test]
async fn a_policy_change_cuts_tunnels_it_no_longer_allows() {
    let fixture =
        ProxyFixture::new(allowing(&["allowed.test:22", "other.test:22", "loop.test:22", "127.0.0.1:22"])).await;
    let mut streams = Vec::new();
    for host in ["allowed.test:22", "other.test:22", "loop.test:22"] {
        let (mut stream, _) = fixture.connect(host).await;
        stream.write_all(b"one").await.unwrap();
        assert_eq!(next(&mut stream, 3).await, b"one");
        streams.push(stream);
    }
    fixture.proxy.set_policy(allowing(&["other.test:22", "loop.test:22"]));
    let [gone, kept, inner] = &mut streams[..] else { panic!("three tunnels") };
    assert_eq!(rest(gone).await, "");
    assert_eq!(rest(inner).await, "", "its address is no longer listed");
    kept.write_all(b"two").await.unwrap();
    assert_eq!(next(kept, 3).await, b"two");
    let cut: Vec<String> = fixture.decisions.lines().into_iter().filter(|line| line.contains("changed")).collect();
    assert_eq!(cut.len(), 2, "{cut:?}");
    assert!(
        fixture.connect("allowed.test:22").await.1.starts_with("HTTP/1.1 403 Forbidden; ralph: `allowed.test:22` ")
    );
}

/// A resolver that answers only when the test lets it, and dials nothing.
#[derive(Debug, Default)]
struct PausedResolver {
    asked: Notify,
    go_on: Notify,
    dials: AtomicUsize,
}

impl EgressResolver for PausedResolver {
    fn resolve<'a>(&'a self, _host: &'a str) -> ResolverFuture<'a, Vec<IpAddr>> {
        Box::pin(async {
            self.asked.notify_one();
            self.go_on.notified().await;
            Ok(vec![PUBLIC.parse().unwrap()])
        })
    }

    fn dial(&self, _address: SocketAddr) -> ResolverFuture<'_, TcpStream> {
        self.dials.fetch_add(1, Ordering::SeqCst);
        Box::pin(std::future::ready(Err(std::io::ErrorKind::ConnectionRefused.into())))
    }
}

#[tokio::test]
async fn a_policy_change_during_the_lookup_applies() {
    for (after, dials) in [(allowing(&["allowed.test"]), 1), (allowing(&["other.test"]), 0)] {
        let slow = Arc::new(PausedResolver::default());
        let context = ConnectionContext::new(
            ProxyLimits::default(),
            allowing(&["allowed.test"]).into(),
            slow.clone(),
            Arc::new(DecisionRecorder::default()),
        );
        let target = EgressTarget::new("allowed.test", 443).unwrap();
        let change = async {
            slow.asked.notified().await;
            context.set_policy(after);
            slow.go_on.notify_one();
        };
        let (opened, ()) = tokio::join!(context.open(EgressEntry::Connect, &target, AccessRequest::Tunnel), change);
        assert!(opened.is_err());
        assert_eq!(slow.dials.load(Ordering::SeqCst), dials);
    }
}

#[tokio::test]
async fn idle_tunnels_end() {
    let limits = ProxyLimits { idle_time: Duration::from_millis(50), ..ProxyLimits::default() };
    let fixture = ProxyFixture::with_limits(limits, allowing(&["allowed.test:22"]), "").await;
    let (mut stream, _) = fixture.connect("allowed.test:22").await;
    assert_eq!(rest(&mut stream).await, "");
}

#[tokio::test]
async fn a_client_that_sends_no_hello_is_cut() {
    let limits = ProxyLimits { head_time: Duration::from_millis(50), ..ProxyLimits::default() };
    let fixture = ProxyFixture::with_limits(limits, allowing(&["allowed.test"]), "").await;
    let (mut stream, _) = fixture.connect("allowed.test:443").await;
    stream.write_all(&[22]).await.unwrap();
    assert_eq!(rest(&mut stream).await, "");
    let last = fixture.decisions.lines().pop();
    assert_eq!(last.as_deref(), Some("connect allowed.test:443 no: the client took too long to send its request"));
}
