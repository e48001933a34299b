//! Tests of connections to synthetic addresses. The address that a client wanted is passed in here instead of bound:
//! listening on port 443 of such an address needs a network namespace.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use ralph_core::policy::Policy;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;

use super::fixture::{DecisionRecorder, PUBLIC, ProxyFixture, RecordingResolver, allowing, answers_to, next, rest};
use crate::connection_context::ConnectionContext;
use crate::grant::ProxyGrant;
use crate::inspect::MitmCa;
use crate::inspect::client_hello::tests::hello;
use crate::limits::ProxyLimits;
use crate::listen::transparent;

struct TransparentFixture {
    resolver: Arc<RecordingResolver>,
    decisions: Arc<DecisionRecorder>,
    context: Arc<ConnectionContext>,
}

impl TransparentFixture {
    async fn new(policy: Policy) -> Self {
        let (resolver, decisions) = (RecordingResolver::new("").await, Arc::new(DecisionRecorder::default()));
        let context = Arc::new(ConnectionContext::new(
            ProxyLimits::default(),
            policy.into(),
            resolver.clone(),
            decisions.clone(),
        ));
        Self { resolver, decisions, context }
    }

    fn address(&self, name: &str, port: u16) -> SocketAddr {
        (self.context.synthetic_address(name).unwrap(), port).into()
    }

    async fn dial(&self, wanted: SocketAddr) -> (TcpStream, AbortOnDropHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let (far, _) = listener.accept().await.unwrap();
        let context = Arc::clone(&self.context);
        let serving = tokio::spawn(async move { transparent::serve(&context, far, wanted).await });
        (near, AbortOnDropHandle::new(serving))
    }

    async fn exchange(&self, wanted: SocketAddr, bytes: &[u8]) -> String {
        let (mut stream, _serving) = self.dial(wanted).await;
        stream.write_all(bytes).await.ok();
        answers_to(&mut stream, bytes).await
    }
}

#[tokio::test]
async fn tls_to_the_resolved_name_is_relayed() {
    let inside = TransparentFixture::new(allowing(&["allowed.test"])).await;
    let first = hello(Some("allowed.test"));
    let (mut stream, _serving) = inside.dial(inside.address("allowed.test", 443)).await;
    stream.write_all(&first).await.unwrap();
    assert_eq!(next(&mut stream, first.len()).await, first);
    assert_eq!(
        (inside.resolver.queries(), inside.resolver.dials()),
        (vec!["allowed.test".to_owned()], vec![format!("{PUBLIC}:443")])
    );
    assert_eq!(inside.decisions.lines()[1..], ["transparent allowed.test:443 yes: rule `allowed.test`"]);
}

#[tokio::test]
async fn other_protocols_and_names_are_not_resolved() {
    let inside = TransparentFixture::new(allowing(&["allowed.test", "other.test"])).await;
    let wanted = inside.address("allowed.test", 443);
    for first in [hello(Some("other.test")), hello(None), b"SSH-2.0-x".to_vec(), vec![22, 3, 1, 0, 0]] {
        assert_eq!(inside.exchange(wanted, &first).await, "");
    }
    for port in [80, 22, 8443] {
        assert_eq!(
            inside.exchange((wanted.ip(), port).into(), b"GET / HTTP/1.1\r\nHost: allowed.test\r\n\r\n").await,
            ""
        );
    }
    inside.resolver.assert_untouched("nothing was allowed");
    assert_eq!(inside.decisions.all().iter().filter(|note| !note.allowed).count(), 7);
}

#[tokio::test]
async fn plain_requests_must_name_the_host() {
    let inside = TransparentFixture::new(allowing(&["allowed.test:80", "other.test:80"])).await;
    let wanted = inside.address("allowed.test", 80);
    let other = inside.exchange(wanted, b"GET / HTTP/1.1\r\nHost: other.test\r\n\r\n").await;
    assert!(other.starts_with("HTTP/1.1 400 "), "{other}");
    inside.resolver.assert_untouched("another host");
    let same = inside.exchange(wanted, b"GET / HTTP/1.1\r\nHost: Allowed.test\r\n\r\n").await;
    assert!(same.starts_with("HTTP/1.1 200 "), "{same}");
    assert_eq!(inside.resolver.received(), "GET / HTTP/1.1\r\nhost: allowed.test\r\n\r\n");
}

#[tokio::test]
async fn requests_in_tls_are_checked_where_rules_are_about_requests() {
    let authority = Arc::new(MitmCa::new("one").unwrap());
    let (resolver, decisions) = (RecordingResolver::new("").await, Arc::new(DecisionRecorder::default()));
    let policy = allowing(&["GET allowed.test/ok", "other.test"]);
    let grant = ProxyGrant { authority: Some(Arc::clone(&authority)), ..ProxyGrant::from(policy) };
    let context = Arc::new(ConnectionContext::new(ProxyLimits::default(), grant, resolver.clone(), decisions.clone()));
    let inside = TransparentFixture { resolver, decisions, context };
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.certificate().as_bytes()).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connector = TlsConnector::from(Arc::new(config));
    for (host, sni, spoken_for) in [
        ("allowed.test", "allowed.test", true),
        ("allowed.test", "other.test", false),
        ("other.test", "other.test", false),
    ] {
        let (stream, _serving) = inside.dial(inside.address(host, 443)).await;
        let tls = connector.connect(sni.try_into().unwrap(), stream).await;
        assert_eq!(tls.is_ok(), spoken_for, "{host} {sni}");
        let Ok(mut tls) = tls else { continue };
        for (bytes, status) in [
            ("GET /no HTTP/1.1\r\nHost: allowed.test\r\n\r\n", "HTTP/1.1 403 "),
            ("GET /ok HTTP/1.1\r\nHost: other.test\r\n\r\n", "HTTP/1.1 400 "),
        ] {
            tls.write_all(bytes.as_bytes()).await.unwrap();
            let mut some = vec![0; 4096];
            let n = tls.read(&mut some).await.unwrap();
            assert!(some[..n].starts_with(status.as_bytes()), "{}", String::from_utf8_lossy(&some[..n]));
        }
    }
    assert_eq!(inside.resolver.dials(), [format!("{PUBLIC}:443")], "only for the host that is not inspected");
}

#[tokio::test]
async fn other_ports_are_checked_by_name_and_port() {
    let inside = TransparentFixture::new(allowing(&["allowed.test:22", "inner.test:22"])).await;
    let (mut stream, _serving) = inside.dial(inside.address("allowed.test", 22)).await;
    stream.write_all(b"SSH-2.0").await.unwrap();
    assert_eq!(next(&mut stream, 7).await, b"SSH-2.0");
    assert_eq!(inside.exchange(inside.address("inner.test", 22), b"x").await, "");
    assert_eq!(inside.resolver.dials(), [format!("{PUBLIC}:22")]);
}

#[tokio::test]
async fn unassigned_and_stale_addresses_are_refused() {
    let inside = TransparentFixture::new(allowing(&["allowed.test"])).await;
    let stale = inside.address("allowed.test", 443);
    inside.context.set_policy(allowing(&["other.test"]));
    // Allowed again, but with another address.
    inside.context.set_policy(allowing(&["allowed.test"]));
    let before = inside.decisions.all().len();
    for wanted in [
        stale,
        (Ipv4Addr::new(198, 19, 0, 1), 443).into(),
        (Ipv4Addr::new(1, 1, 1, 1), 443).into(),
        "[::1]:443".parse().unwrap(),
    ] {
        assert_eq!(inside.exchange(wanted, &hello(Some("allowed.test"))).await, "");
    }
    inside.resolver.assert_untouched("no name was resolved");
    assert_eq!(
        inside.decisions.lines()[before..],
        [
            "transparent 198.18.1.0:443 no: the address was not given out for a name",
            "transparent 198.19.0.1:443 no: the address was not given out for a name",
            "transparent 1.1.1.1:443 no: the address was not given out for a name",
            "transparent ::1:443 no: the address was not given out for a name",
        ]
    );
}

#[tokio::test]
async fn the_listener_knows_the_original_address() {
    let fixture = ProxyFixture::new(allowing(&["allowed.test"])).await;
    let mut stream = TcpStream::connect(fixture.transparent).await.unwrap();
    assert_eq!(rest(&mut stream).await, "");
    let line = format!("transparent {} no: the address was not given out for a name", fixture.transparent);
    assert_eq!(fixture.decisions.lines(), [line]);
}
