//! Tests of model routes: which requests are allowed, with whose key, and what may come back.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ralph_core::policy::{Policy, PolicyMode};
use ralph_proxy::credential::ProxyCredential;
use ralph_proxy::egress_events::{AlarmKind, ChargeBasis, EgressEvent};
use ralph_proxy::grant::ProxyGrant;
use ralph_proxy::ledger::{Ledger, LedgerAmount};
use ralph_proxy::limits::ProxyLimits;
use ralph_proxy::meter::GatewayRefusal;
use ralph_proxy::meter::RouteApi;
use ralph_testkit::model_server::{FakeModelScript, FakeModelServer, ScriptedTurn};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::fixture::{
    DEFAULT_OUTPUT, FakeResolver, GatewayFixture, MAX_OUTPUT, MODEL, REAL, caps, grant, key_of, route,
    unlimited_ledger, wait_until,
};
use crate::http_client::{TEST_APIS, TestApi, get, post, read, rest, send_and_read};
use crate::scripted_host::{ScriptedHost, answer, ok};

/// The keys of the three routes; the real key is the same for all.
pub(crate) struct RouteKeys {
    anthropic: Arc<ProxyCredential>,
    openai: Arc<ProxyCredential>,
    gemini: Arc<ProxyCredential>,
}

impl RouteKeys {
    pub(crate) fn new() -> Self {
        let (anthropic, openai) = (key_of(RouteApi::Anthropic, "A"), key_of(RouteApi::OpenAi, "O"));
        Self { anthropic, openai, gemini: key_of(RouteApi::Gemini, "G") }
    }

    pub(crate) fn phantom(&self, ask: TestApi) -> &str {
        match ask {
            TestApi::Messages => self.anthropic.phantom(),
            TestApi::Chat | TestApi::Responses => self.openai.phantom(),
            TestApi::Gemini => self.gemini.phantom(),
        }
    }

    /// Returns a grant with three routes to one server.
    pub(crate) fn grant(&self, url: &str, ledger: Ledger) -> ProxyGrant {
        let routes = vec![
            route("anthropic", RouteApi::Anthropic, url, Some(&self.anthropic)),
            route("openai", RouteApi::OpenAi, url, Some(&self.openai)),
            route("gemini", RouteApi::Gemini, url, Some(&self.gemini)),
        ];
        grant(routes, ledger)
    }
}

/// Starts a provider over plain HTTP on this machine, and a sandbox with routes to it.
pub(crate) async fn provider(turn: ScriptedTurn) -> (FakeModelServer, RouteKeys, GatewayFixture) {
    let server = FakeModelServer::builder()
        .script(FakeModelScript::for_all_calls([turn]))
        .expect_key(REAL)
        .start()
        .await
        .unwrap();
    let keys = RouteKeys::new();
    let fixture = GatewayFixture::open(keys.grant(&server.url(), unlimited_ledger()), FakeResolver::new(&[]));
    (server, keys, fixture)
}

/// Starts a host that answers as the test says, behind the routes.
async fn host_answering(answer: Vec<Vec<u8>>) -> (ScriptedHost, RouteKeys, GatewayFixture) {
    let host = ScriptedHost::start(None, move |_| answer.clone()).await;
    let keys = RouteKeys::new();
    let fixture = GatewayFixture::open(
        keys.grant(&format!("http://{}", host.address), unlimited_ledger()),
        FakeResolver::new(&[]),
    );
    (host, keys, fixture)
}

#[tokio::test]
async fn every_api_works_over_http_and_https() {
    for (tls, http2) in [(false, false), (true, false), (true, true)] {
        let builder = FakeModelServer::builder()
            .script(FakeModelScript::for_all_calls([ScriptedTurn::text("good day")]))
            .expect_key(REAL);
        let builder = if tls { builder.tls(&["api.test"]) } else { builder };
        let server = if http2 { builder } else { builder.http1_only() }.start().await.unwrap();
        let keys = RouteKeys::new();
        let (url, network) = if tls {
            ("https://api.test".to_owned(), FakeResolver::new(&[&server.ca_pem()]).with("api.test", server.address()))
        } else {
            (server.url(), FakeResolver::new(&[]))
        };
        let fixture = GatewayFixture::open(keys.grant(&url, unlimited_ledger()), network);
        for wire in TEST_APIS {
            for stream in [false, true] {
                let got = send_and_read(fixture.proxy_address, &wire.call(keys.phantom(wire), Some(50), stream)).await;
                assert_eq!((got.status, got.complete), (200, true), "{wire:?} {tls} {http2} {}", got.text());
                assert!(got.text().contains("good"), "{wire:?} {}", got.text());
                assert!(!got.head.contains(REAL) && !got.text().contains(REAL));
            }
        }
        let seen = server.requests();
        assert_eq!(seen.len(), 8);
        let peers: std::collections::HashSet<_> = seen.iter().map(|request| request.peer).collect();
        let trail: Vec<_> = seen.iter().map(|request| (request.path.clone(), request.peer)).collect();
        assert_eq!(peers.len(), 1, "connections are reused: {trail:?}");
        for request in &seen {
            assert!(!request.http2, "HTTP/2 is not offered, since it measured slower");
            let text = format!("{request:?}");
            assert!(!TEST_APIS.iter().any(|wire| text.contains(keys.phantom(*wire))), "a phantom stays inside");
            assert_eq!(request.header("accept-encoding"), Some("identity"));
        }
        fixture.wait_until_settled().await;
        let calls = fixture.events.calls();
        assert!(calls.len() == 8 && calls.iter().all(|call| call.charge == ChargeBasis::Reported), "{calls:?}");
        assert_eq!(calls.iter().map(|call| call.usage.output).sum::<u64>(), server.bill().output);
        assert!(!fixture.events.text().contains(REAL));
    }
}

#[tokio::test]
async fn only_the_phantom_of_a_route_is_accepted() {
    let (server, keys, fixture) = provider(ScriptedTurn::text("ok")).await;
    let body = TestApi::Messages.body(MODEL, "hi", Some(9), false).to_string();
    let (own, other) = (keys.phantom(TestApi::Messages), keys.phantom(TestApi::Gemini));
    let astray = || vec![(AlarmKind::PhantomMisdirected, "G".to_owned())];
    for (headers, status, alarms) in [
        (vec![], 401, vec![]),
        (vec!["x-api-key: sk-ant-api03-mine".to_owned()], 401, vec![]),
        (vec![format!("x-api-key: {REAL}")], 401, vec![]),
        (vec![format!("x-api-key: {own}")], 200, vec![]),
        (vec![format!("X_Api_Key: {own}")], 200, vec![]),
        (vec![format!("Authorization: Bearer {own}")], 200, vec![]),
        (vec![format!("Authorization: Bearer {own}"), "x-api-key: mine".to_owned()], 200, vec![]),
        (
            vec![format!("x-api-key: {own}"), "Authorization: Bearer mine".to_owned(), "Cookie: a=b".to_owned()],
            200,
            vec![],
        ),
        (vec![format!("x-other: {own}")], 401, vec![]),
        (vec![format!("x-api-key: {other}")], 401, astray()),
        (vec![format!("x-api-key: {own}"), format!("x-note: {other}")], 401, astray()),
        (vec![format!("x-api-key: {own}"), format!("x-note: \u{e9}{other}")], 401, astray()),
        (vec![format!("Authorization: Basic {}", BASE64.encode(format!("me:{other}")))], 401, astray()),
    ] {
        let (before, hits) = (fixture.events.alarms().len(), server.hits());
        let lines: Vec<&str> = headers.iter().map(String::as_str).collect();
        let got =
            send_and_read(fixture.proxy_address, &post("/r/anthropic/v1/messages", &lines, body.as_bytes())).await;
        assert_eq!(got.status, status, "{headers:?} {}", got.text());
        assert_eq!(fixture.events.alarms()[before..], alarms, "{headers:?}");
        if status == 200 {
            let seen = server.requests().pop().unwrap();
            assert_eq!(seen.header("x-api-key"), Some(REAL), "{headers:?}");
            assert_eq!((seen.header("authorization"), seen.header("cookie")), (None, None), "{headers:?}");
        } else {
            assert_eq!(server.hits(), hits, "{headers:?}");
            assert_eq!(got.json()["error"]["type"], "authentication_error", "{headers:?}");
        }
    }
}

/// A phantom of another credential is sent to no provider; the route's own is worth nothing there and is reported
/// once.
#[tokio::test]
async fn phantoms_in_a_prompt_raise_an_alarm() {
    for wire in TEST_APIS {
        let (server, keys, fixture) = provider(ScriptedTurn::text("ok")).await;
        let own = keys.phantom(wire);
        let other = keys.phantom(if wire == TestApi::Gemini { TestApi::Messages } else { TestApi::Gemini });
        let name = if wire == TestApi::Gemini { "A" } else { "G" };
        let path = format!("/r/{}{}", wire.route(), wire.path(MODEL, false));
        let key = wire.key(own);
        for prompt in [format!("TOKEN={other}"), BASE64.encode(format!("x:{other}")), format!("{own} {other}")] {
            let before = fixture.events.alarms().len();
            let body = wire.body(MODEL, &prompt, Some(9), false).to_string();
            let got = send_and_read(fixture.proxy_address, &post(&path, &[&key], body.as_bytes())).await;
            assert_eq!(got.status, 401, "{wire:?} {}", got.text());
            assert!(got.text().contains("phantom"), "{wire:?} {}", got.text());
            let alarms = fixture.events.alarms();
            assert!(
                alarms[before..].contains(&(AlarmKind::PhantomMisdirected, name.to_owned())),
                "{wire:?} {alarms:?}"
            );
        }
        assert_eq!((server.hits(), fixture.events.started_calls()), (0, 0), "{wire:?}: neither dialled nor reserved");
        assert_eq!((fixture.ledger.settled(), fixture.ledger.reserved()), Default::default(), "{wire:?}");

        let (server, keys, fixture) = provider(ScriptedTurn::text("ok")).await;
        let own = keys.phantom(wire);
        let key = wire.key(own);
        let body = wire.body(MODEL, &format!("env says {own}"), Some(9), false).to_string();
        for _ in 0..3 {
            let got = send_and_read(fixture.proxy_address, &post(&path, &[&key], body.as_bytes())).await;
            assert_eq!(got.status, 200, "{wire:?} {}", got.text());
        }
        let own_name = match wire {
            TestApi::Messages => "A",
            TestApi::Chat | TestApi::Responses => "O",
            TestApi::Gemini => "G",
        };
        assert_eq!(fixture.events.alarms(), [(AlarmKind::PhantomInPrompt, own_name.to_owned())], "{wire:?}");
        assert_eq!(server.hits(), 3, "{wire:?}");
    }
}

#[tokio::test]
async fn own_phantom_is_accepted_only_in_its_header() {
    let (server, keys, fixture) = provider(ScriptedTurn::text("ok")).await;
    let (own, other) = (keys.phantom(TestApi::Messages), keys.phantom(TestApi::Gemini));
    let key = TestApi::Messages.key(own);
    let body = TestApi::Messages.body(MODEL, "hi", Some(9), false).to_string();
    let agent = format!("User-Agent: me/1 {own}");
    let named = format!("X-Stainless-{own}: 1");
    let headers = [key.as_str(), agent.as_str(), named.as_str(), "Accept: a/b"];
    let path = format!("/r/anthropic/v1/messages?beta={own}&limit=3");
    let got = send_and_read(fixture.proxy_address, &post(&path, &headers, body.as_bytes())).await;
    assert_eq!(got.status, 200, "{}", got.text());
    let seen = server.requests().pop().unwrap();
    assert_eq!((seen.header("user-agent"), seen.header("accept")), (None, Some("a/b")));
    assert_eq!(seen.query.as_deref(), Some("limit=3"));
    assert!(!format!("{seen:?}").to_lowercase().contains(&own.to_lowercase()), "{seen:?}");
    assert_eq!(fixture.events.alarms(), [(AlarmKind::PhantomInPrompt, "A".to_owned())]);
    for (name, alarms) in [(own, &[][..]), (other, &[(AlarmKind::PhantomMisdirected, "G".to_owned())])] {
        let before = fixture.events.alarms().len();
        let got =
            send_and_read(fixture.proxy_address, &get("GET", &format!("/r/anthropic/v1/models/{name}"), &[&key])).await;
        assert_eq!(got.status, 401, "{}", got.text());
        assert_eq!(fixture.events.alarms()[before..], *alarms);
    }
    assert_eq!(server.hits(), 1);
}

/// Every refusal of a route is reported with its reason; what the provider refuses is not one of them.
#[tokio::test]
async fn refusals_are_reported_with_their_reason() {
    let (_server, keys, fixture) = provider(ScriptedTurn::text("ok")).await;
    let key = TestApi::Messages.key(keys.phantom(TestApi::Messages));
    let body = TestApi::Messages.body("dear-model", "hi", Some(9), false).to_string();
    let call = |key: &str| post("/r/anthropic/v1/messages", &[key], body.as_bytes());
    let fine = TestApi::Messages.call(keys.phantom(TestApi::Messages), Some(9), false);
    for (request, kind, reason) in [
        (
            get("DELETE", "/r/anthropic/v1/models/x", &[&key]),
            Some("endpoint"),
            "`DELETE /v1/models/x` is not an endpoint",
        ),
        (call(&key), Some("model"), "model `dear-model` may not be called here"),
        (call("x-api-key: mine"), Some("credential"), "takes the phantom"),
        (post("/r/anthropic/v1/messages", &[&key], b"{"), Some("request"), ""),
        (fine, None, ""),
    ] {
        let before = fixture.events.exchanges().len();
        send_and_read(fixture.proxy_address, &request).await;
        wait_until("it is reported", || fixture.events.exchanges().len() == before + 1).await;
        let reported = fixture.events.exchanges().pop().unwrap();
        assert_eq!(reported.refused.as_ref().map(|refusal| refusal.kind()), kind, "{reported:?}");
        assert!(reported.refused.is_none_or(|refusal| refusal.why().contains(reason)), "{reason}");
    }
}

#[tokio::test]
async fn only_harmless_query_parameters_are_forwarded() {
    let (server, keys, fixture) = provider(ScriptedTurn::text("ok")).await;
    let key = keys.phantom(TestApi::Gemini);
    let body = TestApi::Gemini.body(MODEL, "hi", Some(9), true).to_string();
    for (query, seen) in [
        (format!("key={key}"), None),
        (format!("alt=sse&key={key}"), Some("alt=sse")),
        (format!("key={key}&fields=candidates&alt=sse&%24fields=candidates"), Some("alt=sse")),
        (format!("key={key}&%6bey=mine&access_token=mine&oauth_token=mine"), None),
    ] {
        let path = format!("/r/gemini/v1beta/models/{MODEL}:streamGenerateContent?{query}");
        let steer = ["X-Goog-FieldMask: candidates", "x_http_method_override: DELETE"];
        let got = send_and_read(fixture.proxy_address, &post(&path, &steer, body.as_bytes())).await;
        assert_eq!(got.status, 200, "{query} {}", got.text());
        let last = server.requests().pop().unwrap();
        assert_eq!(last.query.as_deref(), seen, "{query}");
        assert_eq!((last.header("x-goog-fieldmask"), last.header("x_http_method_override")), (None, None));
        assert_eq!(last.header("x-goog-api-key"), Some(REAL));
    }
    let path = format!("/r/gemini/v1beta/models/{MODEL}:generateContent?key=mine");
    assert_eq!(send_and_read(fixture.proxy_address, &post(&path, &[], body.as_bytes())).await.status, 401);
}

#[tokio::test]
async fn revoked_phantoms_are_refused() {
    let (server, keys, fixture) = provider(ScriptedTurn::text("ok")).await;
    assert_eq!(
        send_and_read(fixture.proxy_address, &TestApi::Chat.call(keys.phantom(TestApi::Chat), None, false))
            .await
            .status,
        200
    );
    fixture.proxy.revoke();
    for wire in TEST_APIS {
        let got = send_and_read(fixture.proxy_address, &wire.call(keys.phantom(wire), None, false)).await;
        assert_eq!(got.status, 401, "{wire:?}");
    }
    let names: Vec<_> = fixture.events.alarms();
    let want = ["A", "O", "O", "G"].map(|name| (AlarmKind::PhantomRevoked, name.to_owned()));
    assert_eq!(names, want);
    assert_eq!(server.hits(), 1);
}

#[tokio::test]
async fn unlisted_endpoints_are_refused() {
    let (server, keys, fixture) = provider(ScriptedTurn::text("ok")).await;
    for (wire, method, path, more) in [
        (TestApi::Messages, "DELETE", "/v1/files", &[][..]),
        (TestApi::Messages, "GET", "/v1/organizations", &[]),
        (TestApi::Messages, "POST", "/v1/../v1/messages", &[]),
        (TestApi::Messages, "POST", "/v1/%2e%2e/v1/messages", &[]),
        (TestApi::Messages, "POST", "/v1//messages", &[]),
        (TestApi::Messages, "POST", "/v1/messages%2fbatches", &[]),
        (TestApi::Messages, "POST", "/v1/messages/batches", &[]),
        (TestApi::Messages, "POST", "/v1/messages;x", &[]),
        (TestApi::Messages, "TRACE", "/v1/messages", &[]),
        (TestApi::Messages, "OPTIONS", "/v1/messages", &[]),
        (TestApi::Messages, "PUT", "/v1/messages", &[]),
        (TestApi::Messages, "POST", "", &[]),
        (TestApi::Chat, "POST", "/v1/files", &[]),
        (TestApi::Chat, "POST", "/v1/embeddings", &[]),
        (TestApi::Responses, "GET", "/v1/responses", &[]),
        (TestApi::Responses, "GET", "/v1/responses", &["Connection: Upgrade", "Upgrade: h2c"]),
        (TestApi::Gemini, "POST", "/v1beta/cachedContents", &[]),
        (TestApi::Gemini, "POST", "/v1beta/models/..%2ffiles:generateContent", &[]),
    ] {
        let key = wire.key(keys.phantom(wire));
        let headers: Vec<&str> = more.iter().copied().chain([key.as_str()]).collect();
        let got =
            send_and_read(fixture.proxy_address, &get(method, &format!("/r/{}{path}", wire.route()), &headers)).await;
        assert_eq!(got.status, 403, "{method} {path} {}", got.text());
        assert!(got.json()["error"]["message"].as_str().unwrap().starts_with("ralph: "), "{}", got.text());
    }
    assert_eq!(send_and_read(fixture.proxy_address, &get("GET", "/r/nobody/v1/models", &[])).await.status, 404);
    assert_eq!(server.hits(), 0);
    // A listed endpoint, with an offer to upgrade: the offer is not forwarded.
    let key = TestApi::Responses.key(keys.phantom(TestApi::Responses));
    let body = TestApi::Responses.body(MODEL, "hi", None, false).to_string();
    let headers = [key.as_str(), "Connection: Upgrade", "Upgrade: websocket"];
    assert_eq!(
        send_and_read(fixture.proxy_address, &post("/r/openai/v1/responses", &headers, body.as_bytes())).await.status,
        200
    );
    assert_eq!(server.requests()[0].header("upgrade"), None);
}

/// Codex asks for a web socket first; only this answer makes it continue with requests at once.
#[tokio::test]
async fn a_web_socket_request_is_answered_with_426() {
    let (server, keys, fixture) = provider(ScriptedTurn::text("ok")).await;
    let more = ["Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Version: 13"];
    for (wire, path) in
        [(TestApi::Responses, "/v1/responses"), (TestApi::Messages, "/v1/messages"), (TestApi::Gemini, "/ws")]
    {
        for offer in
            [&["Upgrade: websocket"][..], &["Upgrade: h2c, WebSocket"], &["Upgrade: h2c", "Upgrade: websocket"]]
        {
            let key = wire.key(keys.phantom(wire));
            let headers: Vec<&str> =
                [key.as_str(), "Connection: Upgrade"].into_iter().chain(offer.iter().copied()).chain(more).collect();
            let mut stream = fixture.dial().await;
            let words = get("GET", &format!("/r/{}{path}", wire.route()), &headers);
            stream.write_all(&words).await.unwrap();
            let got = read(&mut stream).await;
            assert_eq!((got.status, got.complete), (426, true), "{wire:?} {offer:?} {}", got.text());
            assert_eq!((got.header("upgrade"), got.header("connection")), (Some("HTTP/1.1"), Some("upgrade")));
            let text = got.json()["error"]["message"].as_str().unwrap().to_owned();
            assert_eq!(text, format!("ralph: route `{}` supports HTTP only, without upgrades", wire.route()));
            // And a call on the same connection works.
            stream.write_all(&wire.call(keys.phantom(wire), None, false)).await.unwrap();
            assert_eq!(read(&mut stream).await.status, 200, "{wire:?} {offer:?}");
        }
    }
    assert_eq!(server.hits(), 9);
}

/// Another cage of the same sandbox is served with the same grant, after the previous one ended.
#[tokio::test]
async fn grants_outlive_the_listeners() {
    let server = FakeModelServer::builder()
        .script(FakeModelScript::for_all_calls([ScriptedTurn::text("ok")]))
        .expect_key(REAL)
        .start()
        .await
        .unwrap();
    let keys = RouteKeys::new();
    let terms = keys.grant(&server.url(), unlimited_ledger());
    for _ in 0..3 {
        let fixture = GatewayFixture::open(terms.clone(), FakeResolver::new(&[]));
        for wire in TEST_APIS {
            let got = send_and_read(fixture.proxy_address, &wire.call(keys.phantom(wire), None, false)).await;
            assert_eq!(got.status, 200, "{wire:?} {}", got.text());
        }
        assert_eq!(fixture.events.alarms(), []);
        drop(fixture);
    }
}

/// A rule that denies a host applies to the calls of its models, both before and while they are under way. No rule
/// that allows it is needed.
#[tokio::test]
async fn a_rule_that_denies_the_endpoint_refuses_calls() {
    let (server, keys, fixture) = provider(ScriptedTurn::text("ok")).await;
    let port = server.address().port();
    let policy = |mode, deny: &str| Policy::parse(mode, &[], &[deny]).unwrap();
    for mode in [PolicyMode::Deny, PolicyMode::Allowlist, PolicyMode::Open] {
        for (rule, denied) in [
            ("127.0.0.1", &TEST_APIS[..]),
            (&format!("127.0.0.1:{port}"), &TEST_APIS),
            ("127.0.0.1:1", &[]),
            ("other.test", &[]),
            ("POST 127.0.0.1/v1/messages", &[TestApi::Messages]),
            ("GET 127.0.0.1", &[]),
        ] {
            fixture.proxy.set_policy(policy(mode, rule));
            for wire in TEST_APIS {
                let hits = server.hits();
                let reported = fixture.events.all().len();
                let got = send_and_read(fixture.proxy_address, &wire.call(keys.phantom(wire), None, false)).await;
                if !denied.contains(&wire) {
                    assert_eq!(got.status, 200, "{mode} {rule} {wire:?} {}", got.text());
                    continue;
                }
                assert_eq!((got.status, server.hits()), (403, hits), "{mode} {rule} {wire:?} {}", got.text());
                let want = format!(
                    "ralph: `127.0.0.1:{port}` is denied by rule `{rule}` of the network policy, which only a person can change"
                );
                assert_eq!(got.json()["error"]["message"], want);
                let refused = fixture.events.all().into_iter().skip(reported).find_map(|reported| match reported {
                    EgressEvent::Exchange(exchanged) => exchanged.refused,
                    _ => None,
                });
                assert!(
                    matches!(refused.as_deref(), Some(GatewayRefusal::Policy(why)) if want.ends_with(why)),
                    "{refused:?}"
                );
                assert_eq!(fixture.ledger.reserved(), LedgerAmount::default());
            }
        }
    }
}

#[tokio::test]
async fn a_new_denying_rule_cuts_an_answer_under_way() {
    let waits = || ScriptedTurn::text("too late").slow(Duration::from_mins(5), Duration::ZERO);
    let drips = || ScriptedTurn::text("word ".repeat(400)).slow(Duration::ZERO, Duration::from_millis(100));
    for (turn, begun) in [(waits(), false), (drips(), true)] {
        for wire in TEST_APIS {
            let (server, keys, fixture) = provider(turn.clone()).await;
            let mut stream = fixture.dial().await;
            stream.write_all(&wire.call(keys.phantom(wire), Some(50), true)).await.unwrap();
            wait_until("it received the call", || server.hits() == 1).await;
            if begun {
                stream.read_exact(&mut [0; 40]).await.unwrap();
            }
            fixture.proxy.set_policy(Policy::parse(PolicyMode::Deny, &[], &["other.test"]).unwrap());
            fixture.proxy.set_policy(Policy::parse(PolicyMode::Deny, &[], &["127.0.0.1"]).unwrap());
            if begun {
                assert!(!rest(&mut stream).await.ends_with(b"0\r\n\r\n"), "{wire:?}");
            } else {
                let got = read(&mut stream).await;
                assert_eq!(got.status, 403, "{wire:?} {}", got.text());
                assert!(got.text().contains("is denied by rule `127.0.0.1`"), "{wire:?} {}", got.text());
            }
            fixture.wait_until_settled().await;
            // The provider may continue and charge for it, and its usage is no longer read.
            assert_eq!(fixture.events.calls()[0].charge, ChargeBasis::Worst, "{wire:?} {begun}");
        }
    }
}

#[tokio::test]
async fn models_and_output_limits_are_enforced() {
    let (server, keys, fixture) = provider(ScriptedTurn::text("ok")).await;
    for wire in TEST_APIS {
        let key = wire.key(keys.phantom(wire));
        let other = wire.body("dear-model", "hi", Some(9), false).to_string();
        let path = format!("/r/{}{}", wire.route(), wire.path("dear-model", false));
        let got = send_and_read(fixture.proxy_address, &post(&path, &[&key], other.as_bytes())).await;
        assert_eq!(got.status, 403, "{wire:?} {}", got.text());
        // To some servers a limit of zero is no limit.
        let got = send_and_read(fixture.proxy_address, &wire.call(keys.phantom(wire), Some(0), false)).await;
        if wire != TestApi::Messages {
            assert_eq!(got.status, 400, "{wire:?} {}", got.text());
        }
    }
    assert_eq!(server.hits(), 1);
    // Whatever is requested, the limit sent is never above what was reserved.
    for (wire, field) in [
        (TestApi::Messages, "/max_tokens"),
        (TestApi::Chat, "/max_completion_tokens"),
        (TestApi::Responses, "/max_output_tokens"),
        (TestApi::Gemini, "/generationConfig/maxOutputTokens"),
    ] {
        for (asked, want) in [
            (None, DEFAULT_OUTPUT),
            (Some(u64::MAX), MAX_OUTPUT),
            (Some(MAX_OUTPUT), MAX_OUTPUT),
            (Some(DEFAULT_OUTPUT + 1), DEFAULT_OUTPUT + 1),
        ] {
            let before = fixture.events.calls().len();
            send_and_read(fixture.proxy_address, &wire.call(keys.phantom(wire), asked, false)).await;
            let sent = server.requests().pop().unwrap().json();
            let field = if wire == TestApi::Chat && asked.is_none() { "/max_tokens" } else { field };
            assert_eq!(sent.pointer(field), Some(&json!(want)), "{wire:?} {asked:?}");
            wait_until("the call is reported", || fixture.events.calls().len() > before).await;
            let reserved = fixture.events.reserved().pop().unwrap();
            assert!((want + 1..want + 200).contains(&reserved), "{wire:?} {asked:?} {reserved}");
        }
    }
    // Each of several answers may be as long as one.
    let mut body = TestApi::Chat.body(MODEL, "hi", Some(1000), false);
    body["n"] = json!(8);
    let key = TestApi::Chat.key(keys.phantom(TestApi::Chat));
    send_and_read(fixture.proxy_address, &post("/r/openai/v1/chat/completions", &[&key], body.to_string().as_bytes()))
        .await;
    assert_eq!(server.requests().pop().unwrap().json()["max_completion_tokens"], 1000);
}

/// Counting costs nothing, and is held to the same models and fields as a call.
#[tokio::test]
async fn count_requests_are_checked_and_free() {
    let (server, keys, fixture) = provider(ScriptedTurn::text("ok")).await;
    let image = json!({"type": "image", "source": {"type": "url", "url": "https://evil.test/?data"}});
    let file = json!([{"parts": [{"fileData": {"fileUri": "https://evil.test/?data"}}]}]);
    let prompt = json!([{"role": "user", "content": "hi"}]);
    let parts = json!([{"parts": [{"text": "hi"}]}]);
    let inner =
        |model: &str| json!({"generateContentRequest": {"model": format!("models/{model}"), "contents": parts}});
    let count = |model: &str| format!("/v1beta/models/{model}:countTokens");
    let anthropic = || "/v1/messages/count_tokens".to_owned();
    for (wire, path, body, status) in [
        (TestApi::Messages, anthropic(), json!({"model": MODEL, "messages": prompt}), 200),
        (TestApi::Messages, anthropic(), json!({"model": "dear-model", "messages": prompt}), 403),
        (TestApi::Messages, anthropic(), json!({"messages": prompt}), 400),
        (
            TestApi::Messages,
            anthropic(),
            json!({"model": MODEL, "messages": [{"role": "user", "content": [image]}]}),
            400,
        ),
        (TestApi::Messages, anthropic(), json!({"model": MODEL, "messages": prompt, "fallbacks": ["dear-model"]}), 200),
        (TestApi::Gemini, count(MODEL), json!({"contents": parts}), 200),
        (TestApi::Gemini, count("dear-model"), json!({"contents": parts}), 403),
        (TestApi::Gemini, count(MODEL), json!({"contents": file}), 400),
        (TestApi::Gemini, count(MODEL), inner(MODEL), 200),
        (TestApi::Gemini, count(MODEL), inner("dear-model"), 400),
        (TestApi::Gemini, count(MODEL), json!({"generate_content_request": {"contents": file}}), 400),
    ] {
        let hits = server.hits();
        let key = wire.key(keys.phantom(wire));
        let path = format!("/r/{}{path}", wire.route());
        let got = send_and_read(fixture.proxy_address, &post(&path, &[&key], body.to_string().as_bytes())).await;
        assert_eq!(got.status, status, "{body} {}", got.text());
        assert_eq!(server.hits() - hits, usize::from(status == 200), "{body}");
        if status == 200 {
            let mut left = body;
            left.as_object_mut().unwrap().remove("fallbacks");
            assert_eq!(server.requests().pop().unwrap().json(), left, "nothing is added");
        }
    }
    assert_eq!((fixture.events.started_calls(), fixture.events.calls().len()), (0, 0));
}

#[tokio::test]
async fn many_choices_share_the_remaining_budget() {
    let server = FakeModelServer::builder().start().await.unwrap();
    for (wire, each) in
        [(TestApi::Chat, "/max_completion_tokens"), (TestApi::Gemini, "/generationConfig/maxOutputTokens")]
    {
        let (mut sent, mut refused) = (0, 0);
        for cap in (30..130).step_by(4) {
            let keys = RouteKeys::new();
            let ledger = Ledger::new(caps(1 << 40, cap), ralph_core::money::MicroUsd::ZERO, 0);
            let fixture = GatewayFixture::open(keys.grant(&server.url(), ledger.clone()), FakeResolver::new(&[]));
            let mut body = wire.body(MODEL, "", Some(500), false);
            match wire {
                TestApi::Gemini => body["generationConfig"]["candidateCount"] = json!(8),
                _ => body["n"] = json!(8),
            }
            let path = format!("/r/{}{}", wire.route(), wire.path(MODEL, false));
            let hits = server.hits();
            let key = wire.key(keys.phantom(wire));
            let got = send_and_read(fixture.proxy_address, &post(&path, &[&key], body.to_string().as_bytes())).await;
            if server.hits() > hits {
                let each = server.requests().pop().unwrap().json().pointer(each).unwrap().as_u64().unwrap();
                assert!(each >= 1 && each * 8 <= cap, "{wire:?} {cap} {each}");
                sent += 1;
            } else {
                let status = if wire == TestApi::Chat { 400 } else { 429 };
                assert_eq!(got.status, status, "{wire:?} {cap} {}", got.text());
                assert!(got.text().contains("ralph: budget spent"), "{}", got.text());
                refused += 1;
            }
            fixture.wait_until_settled().await;
            assert!(ledger.settled().tokens <= cap);
        }
        assert!(sent > 5 && refused > 5, "{wire:?} {sent} {refused}");
    }
}

#[tokio::test]
async fn an_answer_that_contains_the_key_is_cut() {
    let (server, keys, fixture) = provider(ScriptedTurn::Echo).await;
    for (n, wire) in TEST_APIS.into_iter().flat_map(|wire| [(wire, false), (wire, true)]).enumerate() {
        let (wire, stream) = wire;
        let got = send_and_read(fixture.proxy_address, &wire.call(keys.phantom(wire), None, stream)).await;
        assert!(!got.complete, "{wire:?} {stream} {}", got.text());
        assert!(!got.text().contains(REAL), "{wire:?} {stream}");
        wait_until("an alarm is raised", || fixture.events.alarms().len() == n + 1).await;
        assert_eq!(fixture.events.alarms()[n].0, AlarmKind::SecretReturned);
        fixture.wait_until_settled().await;
        // The provider continues and charges; its usage is no longer read.
        assert_eq!(fixture.events.calls()[n].charge, ChargeBasis::Worst);
    }
    assert_eq!(server.hits(), 8);
}

#[tokio::test]
async fn a_key_does_not_come_back_in_any_encoding() {
    let chunk = |text: &str| format!("{:x}\r\n{text}\r\n", text.len()).into_bytes();
    let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    let (half, rest_of) = REAL.split_at(20);
    let one_by_one = REAL.chars().map(|c| chunk(&c.to_string()));
    for (case, answer, passes) in [
        ("in a header", vec![ok(&[&format!("X-Debug: key={REAL}")], "{}")], 502),
        ("beside the status", vec![answer(&format!("200 {REAL}"), &[], "{}")], 200),
        ("in a redirect", vec![answer("302 Found", &[&format!("Location: https://x.test/?k={REAL}")], "")], 502),
        ("in an error", vec![answer("401 Unauthorized", &[], &format!("bad key {REAL}"))], 401),
        ("in two chunks", vec![head.clone(), chunk(&format!("x{half}")), chunk(&format!("{rest_of}y"))], 200),
        ("letter by letter", std::iter::once(head.clone()).chain(one_by_one).collect(), 200),
        ("in base 64", vec![ok(&[], &BASE64.encode(format!("user:{REAL}")))], 200),
        ("as JSON", vec![ok(&[], &json!({"text": format!("{REAL}\n")}).to_string())], 200),
        ("in gzip", vec![ok(&["Content-Encoding: gzip"], "xxxx")], 502),
        (
            "in gzip behind a good word",
            vec![ok(&["Content-Encoding: identity", "Content-Encoding: gzip"], "xxxx")],
            502,
        ),
        (
            "by another protocol",
            vec![b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n".to_vec()],
            502,
        ),
    ] {
        let (host, keys, fixture) = host_answering(answer).await;
        let got =
            send_and_read(fixture.proxy_address, &TestApi::Messages.call(keys.phantom(TestApi::Messages), None, false))
                .await;
        // An answer that is cut off at once may have no beginning either.
        assert!(got.status == passes || (passes != 502 && got.status == 0), "{case} {} {}", got.status, got.text());
        assert!(!format!("{}{}", got.head, got.text()).contains(REAL), "{case}");
        assert!(!got.text().contains(&BASE64.encode(format!("user:{REAL}"))[8..40]), "{case}");
        assert_eq!(host.requests().len(), 1, "{case}");
        fixture.wait_until_settled().await;
        let silent = ["beside the status", "in gzip", "in gzip behind a good word", "by another protocol"];
        assert_eq!(fixture.events.alarms().is_empty(), silent.contains(&case), "{case}");
    }
}

#[tokio::test]
async fn errors_are_charged_by_their_status() {
    let billed = json!({"error": {"message": "x"}, "usage": {"prompt_tokens": 30, "completion_tokens": 4}}).to_string();
    for (status, body, charge) in [
        ("400 Bad", "{}", ChargeBasis::Nothing),
        ("429 Slow", "{}", ChargeBasis::Nothing),
        ("500 Oops", r#"{"error": {"message": "oops"}}"#, ChargeBasis::Nothing),
        ("502 Bad Gateway", "<html>", ChargeBasis::Nothing),
        ("503 Busy", "", ChargeBasis::Nothing),
        ("504 Late", "{}", ChargeBasis::Worst),
        ("524 Late", "<html>", ChargeBasis::Worst),
        ("500 Oops", &billed, ChargeBasis::Reported),
    ] {
        let (_host, keys, fixture) =
            host_answering(vec![answer(status, &["Content-Type: application/json"], body)]).await;
        let got =
            send_and_read(fixture.proxy_address, &TestApi::Chat.call(keys.phantom(TestApi::Chat), Some(50), false))
                .await;
        assert_eq!(got.status.to_string(), status[..3], "{}", got.text());
        fixture.wait_until_settled().await;
        let calls = fixture.events.calls();
        assert_eq!(calls.iter().map(|call| call.charge).collect::<Vec<_>>(), [charge], "{status} {body}");
        let tokens = calls[0].usage.total();
        assert_eq!((tokens > 0, fixture.ledger.settled().tokens), (charge != ChargeBasis::Nothing, tokens), "{status}");
    }
}

#[tokio::test]
async fn calls_that_cannot_be_persisted_are_not_dialled() {
    let (server, keys, fixture) = provider(ScriptedTurn::text("ok")).await;
    fixture.events.full.store(true, Ordering::Relaxed);
    for wire in TEST_APIS {
        let got = send_and_read(fixture.proxy_address, &wire.call(keys.phantom(wire), None, true)).await;
        assert_eq!(got.status, 503, "{}", got.text());
        assert!(got.text().contains("could not be recorded"), "{}", got.text());
    }
    assert_eq!((server.hits(), fixture.resolver.dials().len(), fixture.events.started_calls()), (0, 0, 0));
    assert!(fixture.events.calls().iter().all(|call| call.charge == ChargeBasis::Nothing));
    assert_eq!((fixture.ledger.settled(), fixture.ledger.reserved()), Default::default());
    fixture.events.full.store(false, Ordering::Relaxed);
    let got = send_and_read(fixture.proxy_address, &TestApi::Chat.call(keys.phantom(TestApi::Chat), None, false)).await;
    assert_eq!(got.status, 200, "{}", got.text());
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let (host, keys, fixture) =
        host_answering(vec![answer("307 Temporary Redirect", &["Location: http://127.0.0.1:1/x"], "")]).await;
    let got = send_and_read(fixture.proxy_address, &TestApi::Chat.call(keys.phantom(TestApi::Chat), None, false)).await;
    assert_eq!((got.status, got.header("location")), (307, Some("http://127.0.0.1:1/x")));
    assert_eq!((host.requests().len(), fixture.resolver.dials().len()), (1, 1));
    fixture.wait_until_settled().await;
    assert_eq!(fixture.ledger.settled(), LedgerAmount::default());
}

#[tokio::test]
async fn long_bodies_are_refused() {
    let server = FakeModelServer::builder().start().await.unwrap();
    let keys = RouteKeys::new();
    let limits = ProxyLimits { body_bytes: 4000, ..ProxyLimits::default() };
    let fixture =
        GatewayFixture::with_limits(limits, keys.grant(&server.url(), unlimited_ledger()), FakeResolver::new(&[]));
    let long = TestApi::Messages.body(MODEL, &"x".repeat(5000), None, false).to_string();
    let key = TestApi::Messages.key(keys.phantom(TestApi::Messages));
    let got = send_and_read(fixture.proxy_address, &post("/r/anthropic/v1/messages", &[&key], long.as_bytes())).await;
    assert_eq!((got.status, got.json()["error"]["type"].as_str()), (413, Some("request_too_large")));
    let chunks = format!("{:x}\r\n{long}\r\n0\r\n\r\n", long.len());
    let headers = [key.as_str(), "Transfer-Encoding: chunked"];
    let got =
        send_and_read(fixture.proxy_address, &post("/r/anthropic/v1/messages", &headers, chunks.as_bytes())).await;
    assert_eq!(got.status, 413, "{}", got.text());
    assert_eq!(server.hits(), 0);
}
