//! Reverse routes: who may ask what of a provider, with whose key, and what may come back.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use ralph_proxy::credential::Credential;
use ralph_proxy::ledger::{Ledger, Spend};
use ralph_proxy::limits::Limits;
use ralph_proxy::meter::Wire;
use ralph_proxy::notice::{Charge, Wrong};
use ralph_proxy::terms::Terms;
use ralph_testkit::llm::{Authority, Script, Server, Turn};
use serde_json::json;

use crate::host::{Host, answer, expired, ok};
use crate::stage::{MODEL, REAL, Stage, World, caps, key_of, rich, route, terms, wait_until};
use crate::wire::{ASKS, Ask, ask, get, post};

/// The keys of the three routes; all are the same key outside.
pub(crate) struct Keys {
    anthropic: Arc<Credential>,
    openai: Arc<Credential>,
    gemini: Arc<Credential>,
}

impl Keys {
    pub(crate) fn new() -> Self {
        let (anthropic, openai) = (key_of(Wire::Anthropic, "A"), key_of(Wire::OpenAi, "O"));
        Self { anthropic, openai, gemini: key_of(Wire::Gemini, "G") }
    }

    pub(crate) fn phantom(&self, ask: Ask) -> &str {
        match ask {
            Ask::Messages => self.anthropic.phantom(),
            Ask::Chat | Ask::Responses => self.openai.phantom(),
            Ask::Gemini => self.gemini.phantom(),
        }
    }

    /// Three routes to one place.
    pub(crate) fn terms(&self, url: &str, ledger: Ledger) -> Terms {
        let routes = vec![
            route("anthropic", Wire::Anthropic, url, Some(&self.anthropic)),
            route("openai", Wire::OpenAi, url, Some(&self.openai)),
            route("gemini", Wire::Gemini, url, Some(&self.gemini)),
        ];
        terms(routes, ledger)
    }
}

/// A provider over plain HTTP on this machine, and a sandbox with routes to it.
pub(crate) async fn provider(turn: Turn) -> (Server, Keys, Stage) {
    let server = Server::builder().script(Script::every([turn])).expect_key(REAL).start().await.unwrap();
    let keys = Keys::new();
    let stage = Stage::open(keys.terms(&server.url(), rich()), World::new(&[]));
    (server, keys, stage)
}

/// A host that answers as the test says, behind the routes.
async fn told_to(answer: Vec<Vec<u8>>) -> (Host, Keys, Stage) {
    let host = Host::start(None, move |_| answer.clone()).await;
    let keys = Keys::new();
    let stage = Stage::open(keys.terms(&format!("http://{}", host.address), rich()), World::new(&[]));
    (host, keys, stage)
}

#[tokio::test]
async fn every_wire_over_every_way_to_the_provider() {
    for (tls, http2) in [(false, false), (true, false), (true, true)] {
        let builder = Server::builder().script(Script::every([Turn::text("good day")])).expect_key(REAL);
        let builder = if tls { builder.tls(&["api.test"]) } else { builder };
        let server = if http2 { builder } else { builder.http1_only() }.start().await.unwrap();
        let keys = Keys::new();
        let (url, world) = if tls {
            ("https://api.test".to_owned(), World::new(&[&server.ca_pem()]).with("api.test", server.address()))
        } else {
            (server.url(), World::new(&[]))
        };
        let stage = Stage::open(keys.terms(&url, rich()), world);
        for wire in ASKS {
            for stream in [false, true] {
                let got = ask(stage.door, &wire.call(keys.phantom(wire), Some(50), stream)).await;
                assert_eq!((got.status, got.whole), (200, true), "{wire:?} {tls} {http2} {}", got.text());
                assert!(got.text().contains("good"), "{wire:?} {}", got.text());
                assert!(!got.head.contains(REAL) && !got.text().contains(REAL));
            }
        }
        let seen = server.requests();
        assert_eq!(seen.len(), 8);
        let peers: std::collections::HashSet<_> = seen.iter().map(|request| request.peer).collect();
        let trail: Vec<_> = seen.iter().map(|request| (request.path.clone(), request.peer)).collect();
        assert_eq!(peers.len(), 1, "connections are kept: {trail:?}");
        for request in &seen {
            assert!(!request.http2, "measured: it does not pay");
            let text = format!("{request:?}");
            assert!(!ASKS.iter().any(|wire| text.contains(keys.phantom(*wire))), "a stand-in stays inside");
            assert_eq!(request.header("accept-encoding"), Some("identity"));
        }
        stage.drained().await;
        let calls = stage.notes.calls();
        assert!(calls.len() == 8 && calls.iter().all(|call| call.charge == Charge::Reported), "{calls:?}");
        assert_eq!(calls.iter().map(|call| call.usage.output).sum::<u64>(), server.bill().output);
        assert!(!stage.notes.text().contains(REAL));
    }
}

#[tokio::test]
async fn keys() {
    let (server, keys, stage) = provider(Turn::text("ok")).await;
    let body = Ask::Messages.body(MODEL, "hi", Some(9), false).to_string();
    let (own, other) = (keys.phantom(Ask::Messages), keys.phantom(Ask::Gemini));
    let astray = || vec![(Wrong::PhantomAstray, "G".to_owned())];
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
        let (before, hits) = (stage.notes.alarms().len(), server.hits());
        let lines: Vec<&str> = headers.iter().map(String::as_str).collect();
        let got = ask(stage.door, &post("/r/anthropic/v1/messages", &lines, body.as_bytes())).await;
        assert_eq!(got.status, status, "{headers:?} {}", got.text());
        assert_eq!(stage.notes.alarms()[before..], alarms, "{headers:?}");
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

#[tokio::test]
async fn the_key_of_a_query_and_what_steers_an_endpoint() {
    let (server, keys, stage) = provider(Turn::text("ok")).await;
    let key = keys.phantom(Ask::Gemini);
    let body = Ask::Gemini.body(MODEL, "hi", Some(9), true).to_string();
    for (query, seen) in [
        (format!("key={key}"), None),
        (format!("alt=sse&key={key}"), Some("alt=sse")),
        (format!("key={key}&fields=candidates&alt=sse&%24fields=candidates"), Some("alt=sse")),
        (format!("key={key}&%6bey=mine&access_token=mine&oauth_token=mine"), None),
    ] {
        let path = format!("/r/gemini/v1beta/models/{MODEL}:streamGenerateContent?{query}");
        let steer = ["X-Goog-FieldMask: candidates", "x_http_method_override: DELETE"];
        let got = ask(stage.door, &post(&path, &steer, body.as_bytes())).await;
        assert_eq!(got.status, 200, "{query} {}", got.text());
        let last = server.requests().pop().unwrap();
        assert_eq!(last.query.as_deref(), seen, "{query}");
        assert_eq!((last.header("x-goog-fieldmask"), last.header("x_http_method_override")), (None, None));
        assert_eq!(last.header("x-goog-api-key"), Some(REAL));
    }
    let path = format!("/r/gemini/v1beta/models/{MODEL}:generateContent?key=mine");
    assert_eq!(ask(stage.door, &post(&path, &[], body.as_bytes())).await.status, 401);
}

#[tokio::test]
async fn revoked_stand_ins_are_worth_nothing() {
    let (server, keys, stage) = provider(Turn::text("ok")).await;
    assert_eq!(ask(stage.door, &Ask::Chat.call(keys.phantom(Ask::Chat), None, false)).await.status, 200);
    stage.guard.revoke();
    for wire in ASKS {
        let got = ask(stage.door, &wire.call(keys.phantom(wire), None, false)).await;
        assert_eq!(got.status, 401, "{wire:?}");
    }
    let names: Vec<_> = stage.notes.alarms();
    let want = ["A", "O", "O", "G"].map(|name| (Wrong::PhantomRevoked, name.to_owned()));
    assert_eq!(names, want);
    assert_eq!(server.hits(), 1);
}

#[tokio::test]
async fn endpoints_that_are_not_on_the_list() {
    let (server, keys, stage) = provider(Turn::text("ok")).await;
    let websocket = ["Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Key: x", "Sec-WebSocket-Version: 13"];
    for (wire, method, path, more) in [
        (Ask::Messages, "DELETE", "/v1/files", &[][..]),
        (Ask::Messages, "GET", "/v1/organizations", &[]),
        (Ask::Messages, "POST", "/v1/../v1/messages", &[]),
        (Ask::Messages, "POST", "/v1/%2e%2e/v1/messages", &[]),
        (Ask::Messages, "POST", "/v1//messages", &[]),
        (Ask::Messages, "POST", "/v1/messages%2fbatches", &[]),
        (Ask::Messages, "POST", "/v1/messages/batches", &[]),
        (Ask::Messages, "POST", "/v1/messages;x", &[]),
        (Ask::Messages, "TRACE", "/v1/messages", &[]),
        (Ask::Messages, "OPTIONS", "/v1/messages", &[]),
        (Ask::Messages, "PUT", "/v1/messages", &[]),
        (Ask::Messages, "POST", "", &[]),
        (Ask::Chat, "POST", "/v1/files", &[]),
        (Ask::Chat, "POST", "/v1/embeddings", &[]),
        (Ask::Responses, "GET", "/v1/responses", &websocket),
        (Ask::Gemini, "POST", "/v1beta/cachedContents", &[]),
        (Ask::Gemini, "POST", "/v1beta/models/..%2ffiles:generateContent", &[]),
    ] {
        let key = wire.key(keys.phantom(wire));
        let headers: Vec<&str> = more.iter().copied().chain([key.as_str()]).collect();
        let got = ask(stage.door, &get(method, &format!("/r/{}{path}", wire.route()), &headers)).await;
        assert_eq!(got.status, 403, "{method} {path} {}", got.text());
        assert!(got.json()["error"]["message"].as_str().unwrap().starts_with("ralph: "), "{}", got.text());
    }
    assert_eq!(ask(stage.door, &get("GET", "/r/nobody/v1/models", &[])).await.status, 404);
    assert_eq!(server.hits(), 0);
    // One that is, with an offer to switch: the offer stays here.
    let key = Ask::Responses.key(keys.phantom(Ask::Responses));
    let body = Ask::Responses.body(MODEL, "hi", None, false).to_string();
    let headers = [key.as_str(), "Connection: Upgrade", "Upgrade: websocket"];
    assert_eq!(ask(stage.door, &post("/r/openai/v1/responses", &headers, body.as_bytes())).await.status, 200);
    assert_eq!(server.requests()[0].header("upgrade"), None);
}

#[tokio::test]
async fn models_and_limits() {
    let (server, keys, stage) = provider(Turn::text("ok")).await;
    for wire in ASKS {
        let key = wire.key(keys.phantom(wire));
        let other = wire.body("dear-model", "hi", Some(9), false).to_string();
        let path = format!("/r/{}{}", wire.route(), wire.path("dear-model", false));
        let got = ask(stage.door, &post(&path, &[&key], other.as_bytes())).await;
        assert_eq!(got.status, 403, "{wire:?} {}", got.text());
        // To some servers a limit of nothing is none.
        let got = ask(stage.door, &wire.call(keys.phantom(wire), Some(0), false)).await;
        if wire != Ask::Messages {
            assert_eq!(got.status, 400, "{wire:?} {}", got.text());
        }
    }
    assert_eq!(server.hits(), 1);
    // Whatever is asked for, no more is sent than was set aside.
    for (wire, field, most) in [
        (Ask::Messages, "/max_tokens", 4096),
        (Ask::Chat, "/max_completion_tokens", 4096),
        (Ask::Responses, "/max_output_tokens", 4096),
        (Ask::Gemini, "/generationConfig/maxOutputTokens", 4096),
    ] {
        for asked in [None, Some(u64::MAX)] {
            ask(stage.door, &wire.call(keys.phantom(wire), asked, false)).await;
            let sent = server.requests().pop().unwrap().json();
            assert_eq!(sent.pointer(field), Some(&json!(most)), "{wire:?} {asked:?}");
        }
    }
}

#[tokio::test]
async fn many_choices_share_what_is_left() {
    let server = Server::builder().start().await.unwrap();
    for (wire, each) in [(Ask::Chat, "/max_completion_tokens"), (Ask::Gemini, "/generationConfig/maxOutputTokens")] {
        let (mut sent, mut refused) = (0, 0);
        for cap in (30..130).step_by(4) {
            let keys = Keys::new();
            let ledger = Ledger::new(caps(1 << 40, cap), ralph_core::money::Micros::ZERO, 0);
            let stage = Stage::open(keys.terms(&server.url(), ledger.clone()), World::new(&[]));
            let mut body = wire.body(MODEL, "", Some(500), false);
            match wire {
                Ask::Gemini => body["generationConfig"]["candidateCount"] = json!(8),
                _ => body["n"] = json!(8),
            }
            let path = format!("/r/{}{}", wire.route(), wire.path(MODEL, false));
            let hits = server.hits();
            let key = wire.key(keys.phantom(wire));
            let got = ask(stage.door, &post(&path, &[&key], body.to_string().as_bytes())).await;
            if server.hits() > hits {
                let each = server.requests().pop().unwrap().json().pointer(each).unwrap().as_u64().unwrap();
                assert!(each >= 1 && each * 8 <= cap, "{wire:?} {cap} {each}");
                sent += 1;
            } else {
                let status = if wire == Ask::Chat { 400 } else { 429 };
                assert_eq!(got.status, status, "{wire:?} {cap} {}", got.text());
                assert!(got.text().contains("ralph: budget spent"), "{}", got.text());
                refused += 1;
            }
            stage.drained().await;
            assert!(ledger.settled().tokens <= cap);
        }
        assert!(sent > 5 && refused > 5, "{wire:?} {sent} {refused}");
    }
}

#[tokio::test]
async fn a_provider_that_repeats_the_key_is_cut() {
    let (server, keys, stage) = provider(Turn::Echo).await;
    for (n, wire) in ASKS.into_iter().flat_map(|wire| [(wire, false), (wire, true)]).enumerate() {
        let (wire, stream) = wire;
        let got = ask(stage.door, &wire.call(keys.phantom(wire), None, stream)).await;
        assert!(!got.whole, "{wire:?} {stream} {}", got.text());
        assert!(!got.text().contains(REAL), "{wire:?} {stream}");
        wait_until("an alarm is raised", || stage.notes.alarms().len() == n + 1).await;
        assert_eq!(stage.notes.alarms()[n].0, Wrong::SecretReturned);
        stage.drained().await;
        // The provider goes on and charges; nobody reads its count any more.
        assert_eq!(stage.notes.calls()[n].charge, Charge::Worst);
    }
    assert_eq!(server.hits(), 8);
}

#[tokio::test]
async fn a_key_does_not_come_back_in_any_form() {
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
        let (host, keys, stage) = told_to(answer).await;
        let got = ask(stage.door, &Ask::Messages.call(keys.phantom(Ask::Messages), None, false)).await;
        // An answer that is cut at once may have no beginning either.
        assert!(got.status == passes || (passes != 502 && got.status == 0), "{case} {} {}", got.status, got.text());
        assert!(!format!("{}{}", got.head, got.text()).contains(REAL), "{case}");
        assert!(!got.text().contains(&BASE64.encode(format!("user:{REAL}"))[8..40]), "{case}");
        assert_eq!(host.heard().len(), 1, "{case}");
        stage.drained().await;
        let silent = ["beside the status", "in gzip", "in gzip behind a good word", "by another protocol"];
        assert_eq!(stage.notes.alarms().is_empty(), silent.contains(&case), "{case}");
    }
}

#[tokio::test]
async fn what_an_error_costs() {
    let billed = json!({"error": {"message": "x"}, "usage": {"prompt_tokens": 30, "completion_tokens": 4}}).to_string();
    for (status, body, charge) in [
        ("400 Bad", "{}", Charge::Nothing),
        ("429 Slow", "{}", Charge::Nothing),
        ("500 Oops", r#"{"error": {"message": "oops"}}"#, Charge::Nothing),
        ("502 Bad Gateway", "<html>", Charge::Nothing),
        ("503 Busy", "", Charge::Nothing),
        ("504 Late", "{}", Charge::Worst),
        ("524 Late", "<html>", Charge::Worst),
        ("500 Oops", &billed, Charge::Reported),
    ] {
        let (_host, keys, stage) = told_to(vec![answer(status, &["Content-Type: application/json"], body)]).await;
        let got = ask(stage.door, &Ask::Chat.call(keys.phantom(Ask::Chat), Some(50), false)).await;
        assert_eq!(got.status.to_string(), status[..3], "{}", got.text());
        stage.drained().await;
        let calls = stage.notes.calls();
        assert_eq!(calls.iter().map(|call| call.charge).collect::<Vec<_>>(), [charge], "{status} {body}");
        let tokens = calls[0].usage.total();
        assert_eq!((tokens > 0, stage.ledger.settled().tokens), (charge != Charge::Nothing, tokens), "{status}");
    }
}

#[tokio::test]
async fn what_cannot_be_written_down_is_not_dialled() {
    let (server, keys, stage) = provider(Turn::text("ok")).await;
    stage.notes.full.store(true, Ordering::Relaxed);
    for wire in ASKS {
        let got = ask(stage.door, &wire.call(keys.phantom(wire), None, true)).await;
        assert_eq!(got.status, 503, "{}", got.text());
        assert!(got.text().contains("could not be written down"), "{}", got.text());
    }
    assert_eq!((server.hits(), stage.world.dials().len(), stage.notes.begun()), (0, 0, 0));
    assert!(stage.notes.calls().iter().all(|call| call.charge == Charge::Nothing));
    assert_eq!((stage.ledger.settled(), stage.ledger.reserved()), Default::default());
    stage.notes.full.store(false, Ordering::Relaxed);
    let got = ask(stage.door, &Ask::Chat.call(keys.phantom(Ask::Chat), None, false)).await;
    assert_eq!(got.status, 200, "{}", got.text());
}

#[tokio::test]
async fn redirects_are_the_clients_to_follow() {
    let (host, keys, stage) =
        told_to(vec![answer("307 Temporary Redirect", &["Location: http://127.0.0.1:1/x"], "")]).await;
    let got = ask(stage.door, &Ask::Chat.call(keys.phantom(Ask::Chat), None, false)).await;
    assert_eq!((got.status, got.header("location")), (307, Some("http://127.0.0.1:1/x")));
    assert_eq!((host.heard().len(), stage.world.dials().len()), (1, 1));
    stage.drained().await;
    assert_eq!(stage.ledger.settled(), Spend::default());
}

#[tokio::test]
async fn a_provider_that_cannot_prove_its_name_is_not_spoken_to() {
    let known = Authority::new().unwrap();
    let (old, old_root) = expired("api.test");
    let own = known.server(&["other.test"], &[b"http/1.1"]).unwrap();
    let stranger = Authority::new().unwrap().server(&["api.test"], &[b"http/1.1"]).unwrap();
    for (case, config) in [("another name", own), ("nobody known", stranger), ("too old", old)] {
        let host = Host::saying(Some(config), ok(&[], "{}")).await;
        let keys = Keys::new();
        let world = World::new(&[&known.pem(), &old_root]).with("api.test", host.address);
        let stage = Stage::open(keys.terms("https://api.test", rich()), world);
        for wire in ASKS {
            let got = ask(stage.door, &wire.call(keys.phantom(wire), None, false)).await;
            assert_eq!(got.status, 502, "{case} {}", got.text());
            assert!(got.json()["error"]["message"].as_str().unwrap().contains("does not answer"), "{case}");
        }
        assert_eq!(host.heard(), [], "{case}");
        assert_eq!((stage.ledger.settled(), stage.ledger.reserved()), Default::default(), "{case}");
        assert!(stage.world.dials().iter().all(|dial| dial.port() == 443), "{case}: no second try in the clear");
    }
}

#[tokio::test]
async fn a_key_does_not_travel_in_the_clear() {
    let host = Host::saying(None, ok(&[], "{}")).await;
    for (address, url) in [
        ([93, 184, 215, 14], "http://api.test"),
        ([10, 0, 0, 5], "http://api.test:8080"),
        ([169, 254, 169, 254], "https://api.test"),
    ] {
        let keys = Keys::new();
        let world = World::new(&[]).with_at("api.test", address.into(), host.address);
        let stage = Stage::open(keys.terms(url, rich()), world);
        let got = ask(stage.door, &Ask::Messages.call(keys.phantom(Ask::Messages), None, false)).await;
        assert_eq!(got.status, 502, "{url} {}", got.text());
        assert_eq!((host.heard().len(), stage.world.dials().len()), (0, 0), "{url}");
        assert_eq!(stage.ledger.settled(), Spend::default());
    }
}

#[tokio::test]
async fn long_bodies_are_refused() {
    let server = Server::builder().start().await.unwrap();
    let keys = Keys::new();
    let limits = Limits { body_bytes: 4000, ..Limits::default() };
    let stage = Stage::within(limits, keys.terms(&server.url(), rich()), World::new(&[]));
    let long = Ask::Messages.body(MODEL, &"x".repeat(5000), None, false).to_string();
    let key = Ask::Messages.key(keys.phantom(Ask::Messages));
    let got = ask(stage.door, &post("/r/anthropic/v1/messages", &[&key], long.as_bytes())).await;
    assert_eq!((got.status, got.json()["error"]["type"].as_str()), (413, Some("request_too_large")));
    let chunks = format!("{:x}\r\n{long}\r\n0\r\n\r\n", long.len());
    let headers = [key.as_str(), "Transfer-Encoding: chunked"];
    let got = ask(stage.door, &post("/r/anthropic/v1/messages", &headers, chunks.as_bytes())).await;
    assert_eq!(got.status, 413, "{}", got.text());
    assert_eq!(server.hits(), 0);
}
