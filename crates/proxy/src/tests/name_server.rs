//! Tests of the name server: synthetic addresses for allowed names, and no question is forwarded.

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::fixture::{ProxyFixture, allowing, next, rest};
use crate::dns::tests::query;

#[tokio::test]
async fn only_allowed_names_exist() {
    let fixture =
        ProxyFixture::new(allowing(&["allowed.test", "GET half.test/a", "port.test:8443", "*.wild.test"])).await;
    for (labels, kind, code, addresses) in [
        (&[&b"allowed"[..], b"test"][..], 1, 0, 1),
        (&[b"ALLOWED", b"test"], 1, 0, 1),
        (&[b"half", b"test"], 1, 0, 1),
        (&[b"port", b"test"], 1, 0, 1),
        (&[b"x", b"wild", b"test"], 1, 0, 1),
        (&[b"allowed", b"test"], 28, 0, 0),
        (&[b"evil", b"test"], 1, 3, 0),
        (&[b"evil", b"test"], 28, 3, 0),
        (&[b"wild", b"test"], 1, 3, 0),
        (&[b"allowed.test"], 1, 3, 0),
        (&[b"x.wild.test", b"evil", b"test"], 1, 3, 0),
        (&[b"127", b"0", b"0", b"1"], 1, 3, 0),
        (&[b"0x7f", b"1"], 1, 3, 0),
        (&[b"_http", b"allowed", b"test"], 1, 3, 0),
        (&[], 1, 3, 0),
        (&[b"allowed", b"test"], 16, 4, 0),
        (&[b"allowed", b"test"], 65, 4, 0),
        (&[b"allowed", b"test"], 255, 4, 0),
    ] {
        let got = fixture.query_dns(&query(labels, kind)).await;
        assert_eq!((got.0, got.1), (code, addresses), "{labels:?} {kind}");
        fixture.resolver.assert_untouched("no question is forwarded");
    }
    let mut two = query(&[b"allowed", b"test"], 1);
    two[5] = 2;
    assert_eq!(fixture.query_dns(&two).await.0, 1);
}

#[tokio::test]
async fn a_name_keeps_its_address_until_the_policy_drops_it() {
    let fixture = ProxyFixture::new(allowing(&["allowed.test", "other.test"])).await;
    let allowed = query(&[b"allowed", b"test"], 1);
    assert!(fixture.query_dns(&allowed).await.2.ends_with(&[198, 18, 1, 0]));
    assert!(fixture.query_dns(&query(&[b"other", b"test"], 1)).await.2.ends_with(&[198, 18, 1, 1]));
    assert!(fixture.query_dns(&allowed).await.2.ends_with(&[198, 18, 1, 0]));
    fixture.proxy.set_policy(allowing(&["other.test"]));
    assert_eq!(fixture.query_dns(&allowed).await.0, 3);
    fixture.proxy.set_policy(allowing(&["allowed.test", "other.test"]));
    assert!(fixture.query_dns(&allowed).await.2.ends_with(&[198, 18, 1, 2]), "an old address is not reused");
    assert_eq!(
        fixture.decisions.lines()[..2],
        ["dns allowed.test:0 yes: rule `allowed.test`", "dns other.test:0 yes: rule `other.test`"]
    );
}

#[tokio::test]
async fn questions_over_tcp_are_answered() {
    let fixture = ProxyFixture::new(allowing(&["allowed.test"])).await;
    let mut stream = TcpStream::connect(fixture.dns_tcp).await.unwrap();
    let allowed = query(&[b"allowed", b"test"], 1);
    let framed = [&u16::try_from(allowed.len()).unwrap().to_be_bytes()[..], &allowed].concat();
    for _ in 0..2 {
        stream.write_all(&framed).await.unwrap();
        let answer = next(&mut stream, 2 + allowed.len() + 16).await;
        assert!(answer.ends_with(&[198, 18, 1, 0]));
    }
    stream.write_all(&[0xff, 0xff]).await.unwrap();
    assert_eq!(rest(&mut stream).await, "");
}
