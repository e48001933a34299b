//! Tests of inspected TLS: for which hosts, what passes, and which credentials are sent where.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ralph_core::secret::Secret;
use ralph_proxy::credential::{CredentialPlacement, ProxyCredential};
use ralph_proxy::egress_events::{AlarmKind, DecisionReason, EgressEvent};
use ralph_proxy::grant::ProxyGrant;
use ralph_proxy::inspect::MitmCa;
use ralph_testkit::model_server;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::fixture::{FakeResolver, GatewayFixture, allowing, trusting, wait_until};
use crate::http_client::{RawHttpAnswer, next_chunk, read, request, rest, send_and_read};
use crate::scripted_host::{HostRequest, ScriptedHost, ok};

const GIT: &str = "ghp_Zq8wErTy2uIoP4aSdFgH6jKlZxCvBn0mQwEr";
const PKG: &str = "npm_Lk7jHgFdSa5pOiUyTr3eWqMnBvCxZa1sDfGh";

/// How a client opens a tunnel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TunnelClientKind {
    Connect,
    Socks,
}

/// A sandbox that is granted two credentials, and may send one kind of request to a third host.
struct InspectionFixture {
    gateway: GatewayFixture,
    git: ScriptedHost,
    pkg: ScriptedHost,
    api: ScriptedHost,
    plain: ScriptedHost,
    git_key: Arc<ProxyCredential>,
    pkg_key: Arc<ProxyCredential>,
    /// The certificate that clients in the sandbox trust.
    ours: String,
    /// The certificate that the proxy trusts for hosts outside.
    theirs: String,
}

const RULES: [&str; 7] =
    ["git.test", "pkg.test", "GET api.test/ok", "GET api.test:8443/ok", "plain.test", "plain.test:80", "git.test:80"];

impl InspectionFixture {
    async fn new(script: impl Fn(&HostRequest) -> Vec<Vec<u8>> + Send + Sync + Clone + 'static) -> Self {
        let outside = model_server::TestCa::new().unwrap();
        let host = async |name: &str| {
            let tls = outside.server_config(&[name], &[b"http/1.1"]).unwrap();
            ScriptedHost::start(Some(tls), script.clone()).await
        };
        let (git, pkg, api, plain) =
            (host("git.test").await, host("pkg.test").await, host("api.test").await, host("plain.test").await);
        let key = |name: &str, secret: &str, place, host: &str| {
            Arc::new(ProxyCredential::new(name, &Secret::new(secret), place).unwrap().for_hosts([host]).unwrap())
        };
        let git_key = key("GIT", GIT, CredentialPlacement::AsSent, "git.test");
        let pkg_key = key("PKG", PKG, CredentialPlacement::Bearer, "pkg.test");
        let authority = Arc::new(MitmCa::new("one").unwrap());
        let ours = authority.certificate().to_owned();
        let credentials = vec![Arc::clone(&git_key), Arc::clone(&pkg_key)];
        let grant = ProxyGrant { credentials, authority: Some(authority), ..ProxyGrant::from(allowing(&RULES)) };
        let network = FakeResolver::new(&[&outside.pem()])
            .with("git.test", git.address)
            .with("pkg.test", pkg.address)
            .with("api.test", api.address)
            .with("plain.test", plain.address);
        let gateway = GatewayFixture::open(grant, network);
        Self { gateway, git, pkg, api, plain, git_key, pkg_key, ours, theirs: outside.pem() }
    }

    async fn answering(answer: Vec<u8>) -> Self {
        Self::new(move |_| vec![answer.clone()]).await
    }

    /// Opens a tunnel and establishes TLS through it, trusting one CA.
    async fn tls(&self, by: TunnelClientKind, host: &str, sni: &str, trust: &str) -> Option<TlsStream<TcpStream>> {
        let stream = tunnel(&self.gateway, by, host).await?;
        let name = ServerName::try_from(sni.to_owned()).unwrap();
        TlsConnector::from(trusting(&[trust])).connect(name, stream).await.ok()
    }

    /// Sends one request to an inspected host.
    async fn ask(&self, host: &str, request_bytes: &[u8]) -> RawHttpAnswer {
        let mut stream =
            self.tls(TunnelClientKind::Connect, host, host, &self.ours).await.expect("the proxy acts as the host");
        stream.write_all(request_bytes).await.unwrap();
        read(&mut stream).await
    }

    fn alarms(&self) -> Vec<(AlarmKind, String)> {
        self.gateway.events.alarms()
    }

    /// Returns all requests that arrived outside.
    fn all_requests(&self) -> Vec<HostRequest> {
        [&self.git, &self.pkg, &self.api, &self.plain].into_iter().flat_map(ScriptedHost::requests).collect()
    }
}

async fn tunnel(gateway: &GatewayFixture, by: TunnelClientKind, host: &str) -> Option<TcpStream> {
    let mut stream = gateway.dial().await;
    match by {
        TunnelClientKind::Connect => {
            let target = if host.contains(':') { host.to_owned() } else { format!("{host}:443") };
            let request_bytes = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
            stream.write_all(request_bytes.as_bytes()).await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.ok()?);
            }
            head.starts_with(b"HTTP/1.1 200 ").then_some(stream)
        }
        TunnelClientKind::Socks => {
            let name = [&[5, 1, 0, 3, u8::try_from(host.len()).unwrap()], host.as_bytes(), &[1, 187]].concat();
            stream.write_all(&[5, 1, 0]).await.unwrap();
            stream.read_exact(&mut [0; 2]).await.ok()?;
            stream.write_all(&name).await.unwrap();
            let mut answer = [0; 10];
            stream.read_exact(&mut answer).await.ok()?;
            (answer[1] == 0).then_some(stream)
        }
    }
}

fn get(host: &str, path: &str, headers: &[&str]) -> Vec<u8> {
    request("GET", path, host, headers, None)
}

fn basic(user: &str, word: &str) -> String {
    format!("Authorization: Basic {}", BASE64.encode(format!("{user}:{word}")))
}

#[tokio::test]
async fn rules_about_requests_hold_on_other_ports() {
    let fixture = InspectionFixture::answering(ok(&[], "hello")).await;
    for (path, status, received) in [("/ok", 200, 1), ("/other", 403, 1)] {
        let mut stream = fixture
            .tls(TunnelClientKind::Connect, "api.test:8443", "api.test", &fixture.ours)
            .await
            .expect("the proxy acts as the host");
        stream.write_all(&get("api.test:8443", path, &[])).await.unwrap();
        assert_eq!((read(&mut stream).await.status, fixture.api.requests().len()), (status, received), "{path}");
    }
    // A client that does not use TLS there cannot be checked.
    let mut stream = tunnel(&fixture.gateway, TunnelClientKind::Connect, "api.test:8443").await.expect("a tunnel");
    stream.write_all(b"GET /other HTTP/1.1\r\nHost: api.test:8443\r\n\r\n").await.unwrap();
    assert_eq!((rest(&mut stream).await, fixture.api.requests().len()), (Vec::new(), 1));
    assert!(
        tunnel(&fixture.gateway, TunnelClientKind::Connect, "api.test:9443").await.is_none(),
        "a port that no rule names"
    );
}

#[tokio::test]
async fn only_hosts_that_need_it_are_inspected() {
    let fixture = InspectionFixture::answering(ok(&[], "hello")).await;
    let other = MitmCa::new("two").unwrap();
    for by in [TunnelClientKind::Connect, TunnelClientKind::Socks] {
        for (host, ours, theirs) in [
            ("git.test", true, false),
            ("api.test", true, false),
            ("plain.test", false, true),
            ("other.test", false, false),
            ("xgit.test", false, false),
        ] {
            assert_eq!(fixture.tls(by, host, host, &fixture.ours).await.is_some(), ours, "{by:?} {host}");
            assert_eq!(fixture.tls(by, host, host, &fixture.theirs).await.is_some(), theirs, "{by:?} {host}");
            assert!(fixture.tls(by, host, host, other.certificate()).await.is_none(), "{by:?} {host}");
        }
        // The name in the hello must be the requested one, or the connection is cut.
        for (host, sni) in [("git.test", "api.test"), ("api.test", "git.test"), ("plain.test", "git.test")] {
            assert!(fixture.tls(by, host, sni, &fixture.ours).await.is_none(), "{by:?} {host} {sni}");
        }
    }
    assert_eq!(fixture.all_requests(), []);
}

#[tokio::test]
async fn requests_are_checked_one_by_one() {
    let fixture = InspectionFixture::answering(ok(&[], "hello")).await;
    for (request_bytes, status) in [
        (get("api.test", "/ok", &[]), 200),
        (get("api.test", "/ok?x=y", &[]), 200),
        (get("api.test", "/no", &[]), 403),
        (get("api.test", "/ok/../no", &[]), 403),
        (get("api.test", "/no/../ok", &[]), 403),
        (get("api.test", "/ok%2f..%2fno", &[]), 403),
        (get("api.test", "//ok", &[]), 403),
        (request("POST", "/ok", "api.test", &[], Some(b"x")), 403),
        (request("TRACE", "/ok", "api.test", &[], None), 405),
        (get("git.test", "/ok", &[]), 400),
        (get("api.test:80", "/ok", &[]), 400),
        (get("api.test", "https://git.test/ok", &[]), 400),
        (get("api.test", "/ok", &["Connection: upgrade", "Upgrade: websocket"]), 501),
    ] {
        let got = fixture.ask("api.test", &request_bytes).await;
        assert_eq!(got.status, status, "{} {}", String::from_utf8_lossy(&request_bytes), got.text());
        // The suggested rule is about this request, where a rule can say that: never about the whole host.
        assert!(!got.text().contains("allow-host api.test`"), "{}", got.text());
    }
    let refused = "is refused: the rules for this host allow other requests, and none allows this one";
    for (request_bytes, want) in [
        (
            request("POST", "/ok?x=y", "api.test", &[], Some(b"x")),
            format!(
                "`POST api.test:443/ok` {refused}; a person can allow it with `ralph run --allow-host 'POST api.test/ok'`"
            ),
        ),
        (get("api.test", "/*", &[]), format!("`GET api.test:443/*` {refused}")),
    ] {
        let got = fixture.ask("api.test", &request_bytes).await;
        assert_eq!((got.text(), got.header("x-ralph-deny")), (format!("ralph: {want}\n"), Some(want.as_str())));
    }
    let reported: Vec<(String, Option<String>)> = fixture
        .gateway
        .events
        .all()
        .into_iter()
        .filter_map(|event| match event {
            EgressEvent::Decision(decided) => {
                let remedy = decided.suggested_rule();
                let request = decided.request.filter(|_| decided.why == DecisionReason::RequestNotAllowed)?;
                Some((format!("{} {}", request.method, request.path), remedy))
            }
            _ => None,
        })
        .collect();
    let reported: Vec<(&str, Option<&str>)> =
        reported.iter().map(|(what, rule)| (what.as_str(), rule.as_deref())).collect();
    assert_eq!(
        reported,
        [
            ("GET /no", Some("GET api.test/no")),
            ("GET /ok/../no", None),
            ("GET /no/../ok", None),
            ("GET /ok%2f..%2fno", None),
            ("GET //ok", None),
            ("POST /ok", Some("POST api.test/ok")),
            ("POST /ok", Some("POST api.test/ok")),
            ("GET /*", None),
        ]
    );
    let got = fixture.ask("api.test", &get("api.test", "/ok", &["X-HTTP-Method-Override: DELETE"])).await;
    assert_eq!(got.status, 200);
    let received = fixture.api.requests();
    let lines: Vec<&str> = received.iter().map(HostRequest::line).collect();
    assert_eq!(lines, ["GET /ok", "GET /ok?x=y", "GET /ok"]);
    assert_eq!(received[2].header("x-http-method-override"), None);
    assert_eq!(fixture.all_requests().len(), 3);
}

#[tokio::test]
async fn the_real_credential_is_injected_for_its_own_host() {
    let answer = ok(&["Set-Cookie: session=1", "Authentication-Info: x", "X-Fine: 1"], "hello");
    let fixture = InspectionFixture::answering(answer).await;
    let (git, pkg) = (fixture.git_key.phantom(), fixture.pkg_key.phantom());
    let put_in = basic("me", GIT).replacen("Authorization: ", "", 1);
    let bearer = format!("Bearer {PKG}");
    for (host, header, want) in [
        ("git.test", basic("me", git), Some(put_in.as_str())),
        ("git.test", "Authorization: Bearer mine".to_owned(), None),
        ("git.test", basic("me", "mine"), None),
        ("git.test", "Cookie: session=1".to_owned(), None),
        ("pkg.test", format!("Authorization: Bearer {pkg}"), Some(bearer.as_str())),
        ("pkg.test", format!("Private_Token: {pkg}"), Some(bearer.as_str())),
    ] {
        let got = fixture.ask(host, &get(host, "/x", &[&header, "Range: bytes=0-3", "Accept-Encoding: gzip"])).await;
        assert_eq!((got.status, got.text().as_str()), (200, "hello"), "{header}");
        assert_eq!((got.header("set-cookie"), got.header("authentication-info")), (None, None), "{header}");
        assert_eq!(got.header("x-fine"), Some("1"));
        let received = if host == "git.test" { &fixture.git } else { &fixture.pkg }.requests().pop().unwrap();
        assert_eq!(received.header("authorization"), want, "{header}");
        assert_eq!((received.header("cookie"), received.header("private_token")), (None, None), "{header}");
        assert_eq!(received.header("accept-encoding"), Some("identity"));
        assert_eq!(received.header("range").is_some(), want.is_none(), "{header}");
        assert!(!received.text().contains(git) && !received.text().contains(pkg), "{header}");
    }
    assert_eq!(fixture.alarms(), []);
    let injected: Vec<_> =
        fixture.gateway.events.exchanges().into_iter().map(|exchanged| exchanged.credential).collect();
    let name = |name: &str| Some(name.to_owned());
    assert_eq!(injected, [name("GIT"), None, None, None, name("PKG"), name("PKG")]);
    assert!(!fixture.gateway.events.text().contains(GIT) && !fixture.gateway.events.text().contains(PKG));
    fixture.gateway.proxy.revoke();
    let got = fixture.ask("pkg.test", &get("pkg.test", "/x", &[&format!("Authorization: Bearer {pkg}")])).await;
    assert_eq!((got.status, fixture.alarms()), (403, vec![(AlarmKind::PhantomRevoked, "PKG".to_owned())]));
}

#[tokio::test]
async fn a_phantom_is_removed_from_other_headers_for_its_own_host() {
    let fixture = InspectionFixture::answering(ok(&[], "hello")).await;
    let pkg = fixture.pkg_key.phantom();
    let (bearer, note) = (format!("Authorization: Bearer {pkg}"), format!("X-Note: see {pkg}"));
    for headers in [&[bearer.as_str(), &note, "X-Other: kept"][..], &[&note, "X-Other: kept"]] {
        let got = fixture.ask("pkg.test", &get("pkg.test", "/x", headers)).await;
        assert_eq!(got.status, 200, "{}", got.text());
        let received = format!("{:?}", fixture.pkg.requests().pop().unwrap());
        assert!(received.contains("kept") && !received.contains(pkg) && !received.contains("see"), "{received}");
    }
}

#[tokio::test]
async fn a_credential_replaces_its_phantom_in_place() {
    let fixture = InspectionFixture::answering(ok(&[], "hello")).await;
    let (stand_in, headers) = (fixture.git_key.phantom(), ["X-Api-Key", "Circle-Token", "X-Figma-Token"]);
    for name in headers {
        let got = fixture.ask("git.test", &get("git.test", "/x", &[&format!("{name}: {stand_in}")])).await;
        assert_eq!(got.status, 200, "{}", got.text());
        let received = fixture.git.requests().pop().unwrap();
        assert_eq!((received.header(name), received.header("authorization")), (Some(GIT), None), "{}", received.text());
    }
    assert_eq!(fixture.alarms(), []);
    // Where nothing is injected, that is reported once.
    for request_bytes in
        [get("git.test", &format!("/x?key={stand_in}"), &[]), get("git.test", "/x", &[&format!("X-Note: {stand_in}")])]
    {
        assert_eq!(fixture.ask("git.test", &request_bytes).await.status, 200);
        assert_eq!(fixture.alarms(), [(AlarmKind::PhantomMisplaced, "GIT".to_owned())]);
        assert!(!fixture.git.requests().pop().unwrap().text().contains(GIT));
    }
}

#[tokio::test]
async fn a_phantom_sent_to_another_host_is_an_alarm() {
    let fixture = InspectionFixture::answering(ok(&[], "hello")).await;
    let (git, pkg) = (fixture.git_key.phantom(), fixture.pkg_key.phantom());
    let bearer = format!("Authorization: Bearer {git}");
    let own = format!("Authorization: Bearer {pkg}");
    let plain = "http://plain.test/x";
    let cases = [
        ("pkg.test", get("pkg.test", "/x", &[&bearer])),
        ("pkg.test", get("pkg.test", "/x", &[&basic("me", git)])),
        ("pkg.test", get("pkg.test", "/x", &[&basic(git, "")])),
        ("pkg.test", get("pkg.test", &format!("/x?token={git}"), &[])),
        ("pkg.test", get("pkg.test", "/x", &[&own, &format!("X-Note: {git}")])),
        ("pkg.test", get("pkg.test", "/x", &[&own, &format!("Cookie: a={git}")])),
        ("api.test", get("api.test", &format!("/ok?{git}"), &[])),
        ("", request("GET", plain, "plain.test", &[&bearer], None)),
        ("", request("GET", &format!("{plain}?{git}"), "plain.test", &[], None)),
        // Its own host, but without TLS.
        ("", request("GET", "http://git.test/x", "git.test", &[&basic("me", git)], None)),
    ];
    for (n, (host, request_bytes)) in cases.into_iter().enumerate() {
        let got = if host.is_empty() {
            send_and_read(fixture.gateway.proxy_address, &request_bytes).await
        } else {
            fixture.ask(host, &request_bytes).await
        };
        assert_eq!(got.status, 403, "{} {}", String::from_utf8_lossy(&request_bytes), got.text());
        assert_eq!(fixture.alarms().len(), n + 1, "{}", String::from_utf8_lossy(&request_bytes));
        assert_eq!(fixture.alarms()[n], (AlarmKind::PhantomMisdirected, "GIT".to_owned()));
    }
    assert_eq!(fixture.all_requests(), []);
}

#[tokio::test]
async fn a_phantom_in_a_body_is_cut() {
    let fixture = InspectionFixture::answering(ok(&[], "hello")).await;
    let git = fixture.git_key.phantom();
    let (half, other) = git.split_at(9);
    let own = format!("Authorization: Bearer {}", fixture.pkg_key.phantom());
    let chunk = |text: &str| format!("{:x}\r\n{text}\r\n", text.len());
    let chunked = format!("{}{}0\r\n\r\n", chunk(&format!("x{half}")), chunk(&format!("{other}y")));
    for (n, request_bytes) in [
        request("POST", "/x", "pkg.test", &[&own], Some(format!("token={git}&x=y").as_bytes())),
        request("POST", "/x", "pkg.test", &[&own, "Transfer-Encoding: chunked"], Some(chunked.as_bytes())),
    ]
    .into_iter()
    .enumerate()
    {
        let got = fixture.ask("pkg.test", &request_bytes).await;
        assert!(got.status == 502 || got.status == 0, "{} {}", got.status, got.text());
        wait_until("an alarm is raised", || fixture.alarms().len() == n + 1).await;
    }
    assert_eq!(fixture.pkg.requests(), [], "no request was completed");
    // A text that only begins like one passes whole.
    let near = format!("x{half}-and-no-more");
    let request_bytes = request("POST", "/x", "pkg.test", &[&own], Some(near.as_bytes()));
    assert_eq!(fixture.ask("pkg.test", &request_bytes).await.status, 200);
    assert_eq!(fixture.pkg.requests()[0].body, near.as_bytes());
}

#[tokio::test]
async fn answers_with_a_real_credential_are_cut() {
    let half = GIT.split_at(11);
    let chunk = |text: &str| format!("{:x}\r\n{text}\r\n", text.len()).into_bytes();
    let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for (case, answer) in [
        ("plainly", vec![ok(&[], GIT)]),
        ("in a header", vec![ok(&[&format!("X-Was: {GIT}")], "")]),
        ("as it was sent", vec![ok(&[], &basic("me", GIT))]),
        ("in two chunks", vec![head.clone(), chunk(half.0), chunk(half.1)]),
        ("at the very end", vec![head.clone(), chunk("x"), chunk(GIT), b"0\r\n\r\n".to_vec()]),
        ("packed", vec![ok(&["Content-Encoding: gzip"], "xx")]),
        ("in a trailer", vec![head, chunk("x"), format!("0\r\nX-Was: {GIT}\r\n\r\n").into_bytes()]),
        ("beside the status", vec![crate::scripted_host::answer(&format!("200 {GIT}"), &[], "x")]),
    ] {
        let fixture = InspectionFixture::new(move |_| answer.clone()).await;
        let request_bytes = get("git.test", "/x", &[&basic("me", fixture.git_key.phantom()), "Connection: close"]);
        let mut stream = fixture.tls(TunnelClientKind::Socks, "git.test", "git.test", &fixture.ours).await.unwrap();
        stream.write_all(&request_bytes).await.unwrap();
        let all = String::from_utf8_lossy(&rest(&mut stream).await).into_owned();
        assert!(!all.contains(GIT) && !all.contains(&BASE64.encode(format!("me:{GIT}"))), "{case}: {all}");
        assert_eq!(fixture.git.requests().len(), 1, "{case}");
        let silent = ["packed", "in a trailer", "beside the status"].contains(&case);
        assert_eq!(fixture.alarms().is_empty(), silent, "{case} {:?}", fixture.alarms());
    }
}

#[tokio::test]
async fn plain_http_does_not_reach_a_tls_host() {
    let fixture = InspectionFixture::answering(ok(&[], "hello")).await;
    let request_bytes = get("git.test", "/x", &[&basic("me", fixture.git_key.phantom())]);
    for by in [TunnelClientKind::Connect, TunnelClientKind::Socks] {
        let mut stream = tunnel(&fixture.gateway, by, "git.test").await.unwrap();
        stream.write_all(&request_bytes).await.unwrap();
        assert_eq!(rest(&mut stream).await, b"", "{by:?}");
    }
    let got = send_and_read(
        fixture.gateway.proxy_address,
        &request("GET", "http://plain.test:443/x", "plain.test:443", &[], None),
    )
    .await;
    assert_eq!(got.status, 403, "{}", got.text());
    assert_eq!(fixture.all_requests(), []);
}

#[tokio::test]
async fn a_policy_change_applies_to_the_next_request_of_a_connection() {
    let fixture = InspectionFixture::answering(ok(&[], "hello")).await;
    let mut stream = fixture.tls(TunnelClientKind::Connect, "api.test", "api.test", &fixture.ours).await.unwrap();
    let request_bytes = get("api.test", "/ok", &[]);
    for _ in 0..3 {
        stream.write_all(&request_bytes).await.unwrap();
        assert_eq!(read(&mut stream).await.status, 200);
    }
    assert_eq!((fixture.api.connections(), fixture.api.requests().len()), (1, 3));
    fixture.gateway.proxy.set_policy(allowing(&["GET api.test/other", "git.test"]));
    stream.write_all(&request_bytes).await.unwrap();
    assert_eq!(read(&mut stream).await.status, 403);
    stream.write_all(&get("api.test", "/other", &[])).await.unwrap();
    assert_eq!(read(&mut stream).await.status, 200);
    assert_eq!(fixture.api.requests().len(), 4);
}

#[tokio::test]
async fn a_policy_change_ends_an_answer_under_way() {
    let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    let drip: Vec<Vec<u8>> = std::iter::once(head).chain((0..4000).map(|_| b"1\r\nx\r\n".to_vec())).collect();
    let fixture = InspectionFixture::new(move |_| drip.clone()).await;
    let mut stream = fixture.tls(TunnelClientKind::Connect, "api.test", "api.test", &fixture.ours).await.unwrap();
    stream.write_all(&get("api.test", "/ok", &[])).await.unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    assert_eq!(next_chunk(&mut stream).await, Some(b"x".to_vec()));
    fixture.gateway.proxy.set_policy(allowing(&["git.test"]));
    // It would have continued for twenty seconds.
    assert!(!rest(&mut stream).await.ends_with(b"0\r\n\r\n"));
}
