//! Tests of the listeners: how they are opened and closed, and how many connections they accept.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::fixture::{DecisionRecorder, ProxyFixture, RecordingResolver, allowing, next, rest};
use crate::limits::ProxyLimits;
use crate::listen::{ListenerSockets, serve};

#[tokio::test]
async fn dropping_the_handle_stops_everything() {
    let fixture = ProxyFixture::new(allowing(&["allowed.test:22"])).await;
    let (mut tunnel, _) = fixture.connect("allowed.test:22").await;
    tunnel.write_all(b"one").await.unwrap();
    assert_eq!(next(&mut tunnel, 3).await, b"one");
    let mut waiting = fixture.dial().await;
    let (proxy_address, dns) = (fixture.proxy_address, fixture.dns_tcp);
    drop(fixture.proxy);
    assert_eq!((rest(&mut tunnel).await, rest(&mut waiting).await), (String::new(), String::new()));
    for place in [proxy_address, dns] {
        // The listeners are dropped by their own tasks, a moment later.
        while TcpStream::connect(place).await.is_ok() {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test]
async fn closing_waits_until_everything_has_ended() {
    let fixture = ProxyFixture::new(allowing(&["allowed.test:22"])).await;
    let (mut tunnel, _) = fixture.connect("allowed.test:22").await;
    let proxy_address = fixture.proxy_address;
    fixture.proxy.close().await;
    assert!(TcpStream::connect(proxy_address).await.is_err());
    assert_eq!(rest(&mut tunnel).await, "");
}

#[tokio::test]
async fn a_connection_beyond_the_limit_is_refused_with_a_reason() {
    let limits = ProxyLimits { connections: 1, ..ProxyLimits::default() };
    let fixture = ProxyFixture::with_limits(limits, allowing(&["allowed.test:22"]), "").await;
    let (tunnel, status) = fixture.connect("allowed.test:22").await;
    assert_eq!(status, "HTTP/1.1 200 Connection established");
    let mut second = fixture.dial().await;
    assert!(rest(&mut second).await.starts_with("HTTP/1.1 503 "));
    assert_eq!(fixture.decisions.lines()[1..], ["unknown :0 no: too many connections at the same time"]);
    drop(tunnel);
    // Its slot is free as soon as its end was noticed.
    while !fixture.exchange(b"CONNECT evil.test:443 HTTP/1.1\r\n\r\n").await.starts_with("HTTP/1.1 403 ") {}
}

#[tokio::test]
async fn slow_and_endless_heads_are_refused() {
    let limits = ProxyLimits { head_time: Duration::from_millis(50), head_bytes: 1000, ..ProxyLimits::default() };
    let fixture = ProxyFixture::with_limits(limits, allowing(&["allowed.test:80"]), "").await;
    assert!(fixture.exchange(b"GET http://allowed.test/ HTTP/1.1\r\n").await.starts_with("HTTP/1.1 408 "));
    let endless = format!("GET http://allowed.test/ HTTP/1.1\r\nA: {}", "a".repeat(2000));
    assert!(fixture.exchange(endless.as_bytes()).await.starts_with("HTTP/1.1 431 "));
    assert_eq!(fixture.exchange(b"").await, "");
    assert_eq!(fixture.exchange(&[5]).await, "");
    assert_eq!(fixture.exchange(&[5, 1, 0, 5, 1]).await, "\u{5}\0");
    fixture.resolver.assert_untouched("no client sent a complete head");
}

#[tokio::test]
async fn socks_clients_are_refused_by_reply_code() {
    let fixture = ProxyFixture::new(allowing(&["allowed.test"])).await;
    for (request, want) in [
        (&[5, 1, 2][..], &[5, 0xff][..]),
        (&[5, 0], &[5, 0xff]),
        (&[5, 1, 0, 5, 2, 0, 1, 1, 1, 1, 1, 0, 80], &[5, 0, 5, 7, 0, 1, 0, 0, 0, 0, 0, 0]),
        (&[5, 1, 0, 5, 3, 0, 1, 1, 1, 1, 1, 0, 80], &[5, 0, 5, 7, 0, 1, 0, 0, 0, 0, 0, 0]),
        (&[5, 1, 0, 5, 1, 0, 2], &[5, 0, 5, 8, 0, 1, 0, 0, 0, 0, 0, 0]),
        (&[5, 1, 0, 5, 1, 0, 1, 1, 1, 1, 1, 0, 80], &[5, 0, 5, 2, 0, 1, 0, 0, 0, 0, 0, 0]),
    ] {
        assert_eq!(fixture.exchange(request).await, String::from_utf8_lossy(want), "{request:?}");
    }
    fixture.resolver.assert_untouched("nothing was allowed");
}

#[test]
fn listeners_need_a_runtime() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let resolver = runtime.block_on(RecordingResolver::new(""));
    let opened =
        serve(ListenerSockets::default(), allowing(&["allowed.test"]), resolver, Arc::new(DecisionRecorder::default()));
    assert!(opened.is_err());
}
