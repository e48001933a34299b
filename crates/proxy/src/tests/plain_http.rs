//! Tests of plain HTTP: what arrives at the server, what comes back, and what is refused.

use super::fixture::{ProxyFixture, allowing, rest};
use tokio::io::AsyncWriteExt;

const RULES: &[&str] = &["allowed.test:80", "allowed.test", "other.test:80"];

#[tokio::test]
async fn hop_by_hop_headers_are_not_forwarded() {
    let fixture = ProxyFixture::new(allowing(RULES)).await;
    let answer = fixture
        .exchange(
            b"GET http://Allowed.test:80/a?b=c HTTP/1.1\r\nHost: allowed.test\r\nProxy-Authorization: Basic eDp5\r\n\
              Proxy-Connection: keep-alive\r\nConnection: X-Mine, keep-alive\r\nX-Mine: 1\r\nTE: trailers\r\nAccept: a/b\r\n\r\n",
        )
        .await;
    assert_eq!(fixture.resolver.received(), "GET /a?b=c HTTP/1.1\r\nhost: allowed.test\r\naccept: a/b\r\n\r\n");
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let mut lines: Vec<&str> = head.lines().filter(|line| !line.starts_with("date: ")).collect();
    lines.sort_unstable();
    assert_eq!(lines, ["HTTP/1.1 200 OK", "content-length: 5", "x-end: 1"]);
    assert_eq!(body, "hello");
}

#[tokio::test]
async fn bodies_are_forwarded() {
    let fixture = ProxyFixture::new(allowing(RULES)).await;
    let sized = b"POST http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 5\r\n\r\nbody.";
    assert!(fixture.exchange(sized).await.starts_with("HTTP/1.1 200 "));
    assert!(fixture.resolver.received().ends_with("host: allowed.test\r\ncontent-length: 5\r\n\r\nbody."));
    let chunked = b"POST http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nTransfer-Encoding: chunked\r\n\
        Expect: 100-continue\r\n\r\n5\r\nbody.\r\n0\r\n\r\n";
    let answer = fixture.exchange(chunked).await;
    assert!(answer.starts_with("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 "), "{answer}");
    assert!(fixture.resolver.received().ends_with("transfer-encoding: chunked\r\n\r\n5\r\nbody.\r\n0\r\n\r\n"));
    assert!(!fixture.resolver.received().contains("expect"));
}

#[tokio::test]
async fn each_request_on_a_connection_is_checked() {
    let fixture = ProxyFixture::new(allowing(RULES)).await;
    let get = |host: &str, path: &str| format!("GET http://{host}/{path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let request = [get("allowed.test", "1"), get("denied.test", "2"), get("other.test", "3")].concat();
    let answer = fixture.exchange(request.as_bytes()).await;
    let statuses: Vec<&str> = answer.split("HTTP/1.1 ").skip(1).filter_map(|part| part.get(..3)).collect();
    assert_eq!(statuses, ["200", "403", "200"], "{answer}");
    assert_eq!(fixture.resolver.queries(), ["allowed.test", "other.test"]);
    let received = fixture.resolver.received();
    assert!(received.contains("GET /1 ") && received.contains("GET /3 ") && !received.contains("/2"), "{received}");
}

#[tokio::test]
async fn the_next_request_is_parsed_as_strictly() {
    for after in [
        "GET http://allowed.test/2 HTTP/1.1\nHost: allowed.test\n\n",
        "GET http://allowed.test/2 HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        "garbage\r\n\r\n",
    ] {
        let fixture = ProxyFixture::new(allowing(RULES)).await;
        let mut stream = fixture.dial().await;
        let first = "GET http://allowed.test/1 HTTP/1.1\r\nHost: allowed.test\r\n\r\n";
        stream.write_all(first.as_bytes()).await.unwrap();
        while !fixture.resolver.received().contains("/1") {
            tokio::task::yield_now().await;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        stream.write_all(after.as_bytes()).await.unwrap();
        let answer = rest(&mut stream).await;
        assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("HTTP/1.1 400 "), "{after:?} {answer}");
        assert!(!fixture.resolver.received().contains("/2"));
    }
}

#[tokio::test]
async fn ambiguous_requests_are_refused() {
    let fixture = ProxyFixture::new(allowing(RULES)).await;
    for (request, status) in [
        ("GET http://allowed.test/ HTTP/1.1\r\nHost: other.test\r\n\r\n", 400),
        ("GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test:8080\r\n\r\n", 400),
        ("GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nHost: allowed.test\r\n\r\n", 400),
        ("GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nHost: other.test\r\n\r\n", 400),
        ("GET http://allowed.test/ HTTP/1.1\r\nHost : allowed.test\r\n\r\n", 400),
        ("GET http://allowed.test/ HTTP/1.1\r\n\r\n", 400),
        ("GET http://allowed.test/ HTTP/1.0\r\n\r\n", 400),
        ("GET http://allowed.test/ HTTP/1.1\nHost: allowed.test\n\n", 400),
        ("GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nA: b\r\n c\r\n\r\n", 400),
        ("GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nA: \0\r\n\r\n", 400),
        (
            "POST http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
        ),
        (
            "POST http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nbody.",
            400,
        ),
        (
            "POST http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nbody.",
            400,
        ),
        (
            "POST http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nTransfer-Encoding: chunked, x\r\n\r\n0\r\n\r\n",
            400,
        ),
        ("GET https://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n", 400),
        ("GET ftp://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n", 400),
        ("GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n", 400),
        ("OPTIONS * HTTP/1.1\r\nHost: allowed.test\r\n\r\n", 400),
        ("GET allowed.test:80 HTTP/1.1\r\nHost: allowed.test\r\n\r\n", 400),
        ("GET http://user@allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n", 403),
        ("GET http://allowed.test:443/ HTTP/1.1\r\nHost: allowed.test:443\r\n\r\n", 403),
        ("TRACE http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n", 405),
        ("TRACK http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n", 405),
        (
            "GET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
            501,
        ),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400),
        ("\u{16}\u{3}\u{1}", 400),
        ("\u{4}\u{1}", 400),
        ("get / HTTP/1.1\r\n\r\n", 400),
        ("\r\nGET http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\n\r\n", 400),
    ] {
        let answer = fixture.exchange(request.as_bytes()).await;
        let got = answer.split(' ').nth(1).and_then(|word| word.parse().ok());
        assert_eq!(got, Some(status), "{request:?} {answer}");
        fixture.resolver.assert_untouched(request);
        assert_eq!(fixture.decisions.all().last().map(|note| note.allowed), Some(false), "{request:?}");
    }
}

#[tokio::test]
async fn a_policy_change_cuts_a_request_under_way() {
    let fixture = ProxyFixture::new(allowing(RULES)).await;
    let mut stream = fixture.dial().await;
    // The server waits for the rest of the body.
    let request = b"POST http://allowed.test/ HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 9\r\n\r\nbo";
    stream.write_all(request).await.unwrap();
    while !fixture.resolver.received().contains("\r\n\r\nbo") {
        tokio::task::yield_now().await;
    }
    fixture.proxy.set_policy(allowing(&["other.test"]));
    let answer = rest(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 502 "), "{answer}");
    assert_eq!(fixture.decisions.lines().pop().as_deref(), Some("http allowed.test:80 no: the network policy changed"));
}
