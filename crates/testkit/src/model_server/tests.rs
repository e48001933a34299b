//! Tests the server as a client sees it, wire by wire.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::{http1, http2};
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use super::{BilledTokens, FakeModelScript, FakeModelServer, ScriptedTurn, ServerBill, UsageReport};

const MESSAGES: &str = "/v1/messages";
const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";
const GEMINI: &str = "/v1beta/models/g:generateContent";
const GEMINI_SSE: &str = "/v1beta/models/g:streamGenerateContent?alt=sse";
const GEMINI_ARRAY: &str = "/v1beta/models/g:streamGenerateContent";

const REPORTED_TOKENS: BilledTokens =
    BilledTokens { input: 10, cached: 20, cache_write: 3, cache_write_long: 4, output: 9, reasoning: 2 };

/// A response: the text is all that arrived, even if the connection broke before the end.
#[derive(Debug)]
struct TestResponse {
    status: StatusCode,
    content_type: String,
    text: String,
    whole: bool,
}

impl TestResponse {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap()
    }

    /// Returns the objects of a stream of events, in order.
    fn events(&self) -> Vec<Value> {
        let lines = self.text.lines().filter_map(|line| line.strip_prefix("data: "));
        lines.filter_map(|line| serde_json::from_str(line).ok()).collect()
    }
}

fn post(path: &str, body: &Value) -> Request<Full<Bytes>> {
    Request::post(path).header("host", "api.test").body(Full::new(body.to_string().into())).unwrap()
}

async fn send_http1(server: &FakeModelServer, request: Request<Full<Bytes>>) -> TestResponse {
    let stream = TcpStream::connect(server.address()).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    read_response(sender.send_request(request).await.unwrap()).await
}

async fn read_response(response: hyper::Response<hyper::body::Incoming>) -> TestResponse {
    let (parts, mut body) = response.into_parts();
    let content_type = parts.headers.get("content-type").unwrap().to_str().unwrap().to_owned();
    let (mut bytes, mut whole) = (Vec::new(), true);
    while let Some(frame) = body.frame().await {
        match frame {
            Ok(frame) => bytes.extend_from_slice(frame.data_ref().map_or(&[], |data| data)),
            Err(_) => {
                whole = false;
                break;
            }
        }
    }
    TestResponse { status: parts.status, content_type, text: String::from_utf8(bytes).unwrap(), whole }
}

async fn server_with_turn(turn: ScriptedTurn) -> FakeModelServer {
    FakeModelServer::builder().script(FakeModelScript::for_all_calls([turn])).start().await.unwrap()
}

fn usage_at(value: &Value, path: &str) -> Value {
    value.pointer(path).cloned().unwrap_or(Value::Null)
}

#[tokio::test]
async fn each_wire_reports_usage_in_its_own_format() {
    let server = server_with_turn(ScriptedTurn::Text {
        text: "hi there".to_owned(),
        usage: UsageReport::Reported(REPORTED_TOKENS),
    })
    .await;
    let anthropic = json!({"input_tokens": 10, "cache_creation_input_tokens": 7, "cache_read_input_tokens": 20,
        "output_tokens": 9,
        "cache_creation": {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 4},
        "server_tool_use": {"web_search_requests": 0, "web_fetch_requests": 0}, "service_tier": "standard"});
    let chat = json!({"prompt_tokens": 37, "completion_tokens": 9, "total_tokens": 46,
        "prompt_tokens_details": {"cached_tokens": 20, "cache_write_tokens": 7},
        "completion_tokens_details": {"reasoning_tokens": 2}});
    let responses = json!({"input_tokens": 37, "input_tokens_details": {"cached_tokens": 20, "cache_write_tokens": 7},
        "output_tokens": 9, "output_tokens_details": {"reasoning_tokens": 2}, "total_tokens": 46});
    let gemini = json!({"promptTokenCount": 37, "cachedContentTokenCount": 20, "candidatesTokenCount": 7,
        "thoughtsTokenCount": 2, "totalTokenCount": 46});
    let cases = [
        (MESSAGES, "/usage", "/content/0/text", anthropic),
        (CHAT, "/usage", "/choices/0/message/content", chat.clone()),
        (RESPONSES, "/usage", "/output/0/content/0/text", responses.clone()),
        (GEMINI, "/usageMetadata", "/candidates/0/content/parts/0/text", gemini.clone()),
    ];
    for (path, usage, text, want) in cases {
        let got = send_http1(&server, post(path, &json!({"model": "m"}))).await;
        assert_eq!((got.status, got.content_type.as_str()), (StatusCode::OK, "application/json"), "{path}");
        assert_eq!(usage_at(&got.json(), usage), want, "{path}");
        assert_eq!(usage_at(&got.json(), text), json!("hi there"), "{path}");
    }
    let include = json!({"model": "m", "stream": true, "stream_options": {"include_usage": true}});
    let last = |events: &[Value], path: &str| events.iter().rev().find_map(|event| event.pointer(path).cloned());
    for (path, usage, want) in
        [(CHAT, "/usage", chat), (RESPONSES, "/response/usage", responses), (GEMINI_SSE, "/usageMetadata", gemini)]
    {
        let got = send_http1(&server, post(path, &include)).await;
        assert_eq!(got.content_type, "text/event-stream; charset=utf-8");
        assert_eq!(last(&got.events(), usage), Some(want), "{path}");
    }
    let got = send_http1(&server, post(MESSAGES, &include)).await;
    let events = got.events();
    assert_eq!(usage_at(&events[0], "/message/usage/output_tokens"), json!(1));
    assert_eq!(usage_at(&events[0], "/message/usage/cache_read_input_tokens"), json!(20));
    assert_eq!(last(&events, "/usage"), Some(json!({"output_tokens": 9})));
    let kinds: Vec<&str> = got.text.lines().filter_map(|line| line.strip_prefix("event: ")).collect();
    let want = "message_start ping content_block_start content_block_delta content_block_delta content_block_stop \
        message_delta message_stop";
    assert_eq!(kinds.join(" "), want);
    let bill = ServerBill { calls: 8, input: 80, cached: 160, cache_write: 24, cache_write_long: 32, output: 72 };
    assert_eq!(server.bill(), bill);
}

#[tokio::test]
async fn chat_streams_usage_only_when_asked() {
    let server = server_with_turn(ScriptedTurn::text("hi")).await;
    let got = send_http1(&server, post(CHAT, &json!({"model": "m", "stream": true}))).await;
    assert!(!got.text.contains("usage"), "{}", got.text);
    assert!(got.text.ends_with("data: [DONE]\n\n"));
    assert_eq!(server.bill().calls, 1);
}

#[tokio::test]
async fn usage_can_be_left_out_or_wrong() {
    let zero = BilledTokens::default();
    for (usage, reported) in [
        (UsageReport::Unreported(REPORTED_TOKENS), None),
        (UsageReport::Misreported { real: REPORTED_TOKENS, reported: zero }, Some(0)),
    ] {
        let server = server_with_turn(ScriptedTurn::fake_stream_end(usage)).await;
        for path in [MESSAGES, CHAT, RESPONSES] {
            let got = send_http1(&server, post(path, &json!({"model": "m"}))).await;
            let reported_now = ["/usage/output_tokens", "/usage/completion_tokens"]
                .iter()
                .find_map(|at| got.json().pointer(at).and_then(Value::as_u64));
            assert_eq!(reported_now, reported, "{path}");
            assert!(got.text.contains("prompt_tokens\\\":0"), "the text itself lies: {}", got.text);
        }
        assert_eq!((server.bill().calls, server.bill().output), (3, 27));
    }
}

#[tokio::test]
async fn tokens_are_counted_from_the_bytes() {
    let server = server_with_turn(ScriptedTurn::text("one two three four")).await;
    let message = json!([{"role": "user", "content": "12345678"}]);
    let got = send_http1(&server, post(MESSAGES, &json!({"model": "m", "messages": message, "max_tokens": 2}))).await;
    assert_eq!(usage_at(&got.json(), "/content/0/text"), json!("one two "));
    assert_eq!(usage_at(&got.json(), "/stop_reason"), json!("max_tokens"));
    assert_eq!(usage_at(&got.json(), "/usage/input_tokens"), json!(3));
    assert_eq!(server.bill(), ServerBill { calls: 1, input: 3, output: 2, ..ServerBill::default() });
}

#[tokio::test]
async fn turns_are_for_calls_with_tools() {
    let turns = [ScriptedTurn::tool("Bash", json!({"command": "ls -l"})), ScriptedTurn::text("done")];
    let server = FakeModelServer::builder().script(FakeModelScript::new(turns)).start().await.unwrap();
    let plain = json!({"model": "m", "stream": true});
    let tools = json!({"model": "m", "stream": true, "tools": [{"name": "Bash"}]});
    let title = send_http1(&server, post(MESSAGES, &plain)).await;
    assert!(title.text.contains("\"text\":\"ok\""), "{}", title.text);
    let call = send_http1(&server, post(MESSAGES, &tools)).await;
    let input: String = call
        .events()
        .iter()
        .filter_map(|event| event.pointer("/delta/partial_json")?.as_str().map(str::to_owned))
        .collect();
    assert_eq!(input, r#"{"command":"ls -l"}"#);
    assert!(call.text.contains("\"stop_reason\":\"tool_use\""));
    for path in [MESSAGES, CHAT, RESPONSES, GEMINI_SSE] {
        let last = send_http1(&server, post(path, &tools)).await;
        assert!(last.text.contains("done"), "the last turn repeats: {}", last.text);
    }
}

#[tokio::test]
async fn tools_on_the_other_wires() {
    let server = server_with_turn(ScriptedTurn::tool("f", json!({"a": "b c"}))).await;
    let chat = send_http1(&server, post(CHAT, &json!({"stream": true}))).await;
    let arguments: String = chat
        .events()
        .iter()
        .filter_map(|event| {
            event.pointer("/choices/0/delta/tool_calls/0/function/arguments")?.as_str().map(str::to_owned)
        })
        .collect();
    assert_eq!(arguments, r#"{"a":"b c"}"#);
    let responses = send_http1(&server, post(RESPONSES, &json!({"stream": true}))).await;
    let numbers: Vec<u64> =
        responses.events().iter().filter_map(|event| event.get("sequence_number")?.as_u64()).collect();
    assert_eq!(numbers, (0..numbers.len() as u64).collect::<Vec<_>>());
    let done = responses.events().pop().unwrap();
    assert_eq!(usage_at(&done, "/response/output/0/arguments"), json!(r#"{"a":"b c"}"#));
    let array = send_http1(&server, post(GEMINI_ARRAY, &json!({}))).await;
    assert_eq!(usage_at(&array.json(), "/0/candidates/0/content/parts/0/functionCall/args/a"), json!("b c"));
}

#[tokio::test]
async fn errors_have_the_format_of_the_wire() {
    let turn = ScriptedTurn::Error {
        status: 429,
        kind: "rate".to_owned(),
        message: "slow down".to_owned(),
        headers: vec![("retry-after".to_owned(), "3".to_owned())],
    };
    let server = server_with_turn(turn).await;
    for (path, want) in [
        (
            MESSAGES,
            json!({"type": "error", "error": {"type": "rate", "message": "slow down"}, "request_id": "req_scripted"}),
        ),
        (CHAT, json!({"error": {"message": "slow down", "type": "rate", "param": null, "code": "rate"}})),
        (RESPONSES, json!({"error": {"message": "slow down", "type": "rate", "param": null, "code": "rate"}})),
        (GEMINI, json!({"error": {"code": 429, "message": "slow down", "status": "rate"}})),
    ] {
        let got = send_http1(&server, post(path, &json!({}))).await;
        assert_eq!((got.status.as_u16(), got.json()), (429, want), "{path}");
    }
    assert_eq!(server.bill(), ServerBill::default());
}

#[tokio::test]
async fn broken_answers() {
    let text = ScriptedTurn::text("one two three");
    let stream = json!({"stream": true, "messages": "1234"});
    let server = server_with_turn(text.clone().cut(4)).await;
    let got = send_http1(&server, post(MESSAGES, &stream)).await;
    assert!(!got.whole);
    assert_eq!(got.events().len(), 4);
    let got = send_http1(&server, post(MESSAGES, &json!({}))).await;
    assert!(!got.whole && serde_json::from_str::<Value>(&got.text).is_err(), "{}", got.text);
    assert_eq!(server.bill(), ServerBill { calls: 2, input: 1, output: 6, ..ServerBill::default() });

    let fail = ScriptedTurn::Fail {
        after_events: 2,
        kind: "overloaded_error".to_owned(),
        message: "busy".to_owned(),
        then: Box::new(text),
    };
    let server = server_with_turn(fail).await;
    let got = send_http1(&server, post(MESSAGES, &stream)).await;
    assert_eq!((got.status.as_u16(), got.events().len()), (200, 3));
    assert!(got.whole && got.text.contains("event: error\n"));

    let server = server_with_turn(ScriptedTurn::Malformed).await;
    let got = send_http1(&server, post(CHAT, &json!({}))).await;
    assert!(got.status == 200 && serde_json::from_str::<Value>(&got.text).is_err());
    let server = server_with_turn(ScriptedTurn::Html).await;
    let got = send_http1(&server, post(CHAT, &json!({}))).await;
    assert_eq!((got.status.as_u16(), got.content_type.as_str()), (502, "text/html; charset=utf-8"));
    let raw = ScriptedTurn::Raw { status: 203, content_type: "a/b".to_owned(), body: b"raw".to_vec() };
    let got = send_http1(&server_with_turn(raw).await, post(CHAT, &json!({}))).await;
    assert_eq!((got.status.as_u16(), got.content_type.as_str(), got.text.as_str()), (203, "a/b", "raw"));
}

#[tokio::test(start_paused = true)]
async fn slow_answers_are_delayed() {
    let turn = ScriptedTurn::text("one two").slow(Duration::from_secs(5), Duration::from_secs(1));
    let server = server_with_turn(turn).await;
    let began = tokio::time::Instant::now();
    let got = send_http1(&server, post(CHAT, &json!({"stream": true}))).await;
    // Five events after the first byte: role, two words, the reason, the end.
    assert_eq!(began.elapsed().as_secs(), 5 + 4, "{}", got.text);
}

#[tokio::test]
async fn a_client_that_disconnects_early_is_billed_for_all() {
    let turn = ScriptedTurn::text("one two three").slow(Duration::from_mins(1), Duration::from_mins(1));
    let server = server_with_turn(turn).await;
    let stream = TcpStream::connect(server.address()).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    let connection = tokio::spawn(connection);
    let asked = tokio::time::timeout(Duration::from_millis(200), sender.send_request(post(CHAT, &json!({})))).await;
    assert!(asked.is_err());
    connection.abort();
    assert_eq!(server.bill(), ServerBill { calls: 1, output: 3, ..ServerBill::default() });
}

#[tokio::test]
async fn other_paths() {
    let server = FakeModelServer::builder().header("x-limit", "9").start().await.unwrap();
    let get = |path: &str| Request::get(path).header("host", "x").body(Full::default()).unwrap();
    assert_eq!(usage_at(&send_http1(&server, get("/v1/models")).await.json(), "/object"), json!("list"));
    let count = post("/v1/messages/count_tokens", &json!({"messages": "12345"}));
    assert_eq!(send_http1(&server, count).await.json(), json!({"input_tokens": 2}));
    assert_eq!(send_http1(&server, get("/v1/files")).await.status, 404);
    let upgrade = Request::get(RESPONSES).header("host", "x").header("upgrade", "websocket").body(Full::default());
    assert_eq!(send_http1(&server, upgrade.unwrap()).await.status, 426);
    assert_eq!((server.hits(), server.bill()), (4, ServerBill::default()));
    let paths: Vec<String> = server.requests().into_iter().map(|request| request.path).collect();
    assert_eq!(paths, ["/v1/models", "/v1/messages/count_tokens", "/v1/files", RESPONSES]);
}

#[tokio::test]
async fn keys_are_checked_and_requests_are_recorded() {
    let server = FakeModelServer::builder()
        .script(FakeModelScript::for_all_calls([ScriptedTurn::Echo]))
        .expect_key("k1")
        .start()
        .await
        .unwrap();
    let cases: [(&[(&str, &str)], u16); 7] = [
        (&[], 401),
        (&[("x-api-key", "k1")], 200),
        (&[("authorization", "Bearer k1")], 200),
        (&[("x-goog-api-key", "k1")], 200),
        (&[("x-api-key", "k2")], 401),
        (&[("authorization", "k1")], 401),
        (&[("x-api-key", "k1"), ("authorization", "Bearer k2")], 401),
    ];
    for (headers, want) in cases {
        let mut request = post("/v1/messages?beta=true", &json!({"model": "m"}));
        for (name, value) in headers {
            request.headers_mut().append(*name, value.parse().unwrap());
        }
        let got = send_http1(&server, request).await;
        assert_eq!(got.status, want, "{headers:?}");
        for (name, value) in headers {
            assert_eq!(got.text.contains(&format!("{name}: {value}")), want == 200, "{}", got.text);
            assert_eq!(server.requests().last().unwrap().header(name), Some(*value));
        }
    }
    let last = server.requests().pop().unwrap();
    assert_eq!((last.method.as_str(), last.query.as_deref(), last.http2), ("POST", Some("beta=true"), false));
    assert_eq!((last.json(), last.peer.ip().is_loopback()), (json!({"model": "m"}), true));
}

#[tokio::test]
async fn tls_serves_both_protocols_under_the_given_names() {
    let builder = FakeModelServer::builder()
        .script(FakeModelScript::for_all_calls([ScriptedTurn::text("one two").cut(3), ScriptedTurn::text("one two")]));
    let server = builder.tls(&["api.test", "localhost"]).start().await.unwrap();
    assert!(server.url().starts_with("https://api.test:"));
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(server.ca_pem().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let connect = async |name: &'static str, protocol: &[u8]| {
        let mut config = config.clone();
        config.alpn_protocols = vec![protocol.to_vec()];
        let stream = TcpStream::connect(server.address()).await.unwrap();
        TlsConnector::from(Arc::new(config)).connect(ServerName::try_from(name).unwrap(), stream).await
    };
    let body = json!({"stream": true});
    let (mut sender, connection) =
        http2::handshake(TokioExecutor::new(), TokioIo::new(connect("api.test", b"h2").await.unwrap())).await.unwrap();
    tokio::spawn(connection);
    let url = format!("https://api.test{MESSAGES}");
    let request = || Request::post(&url).body(Full::new(Bytes::from(body.to_string()))).unwrap();
    let got = read_response(sender.send_request(request()).await.unwrap()).await;
    assert!(!got.whole && got.events().len() == 3, "{}", got.text);
    let got = read_response(sender.send_request(request()).await.unwrap()).await;
    assert!(got.whole, "one stream was cut, not the connection");
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(connect("localhost", b"http/1.1").await.unwrap())).await.unwrap();
    tokio::spawn(connection);
    assert!(read_response(sender.send_request(post(CHAT, &body)).await.unwrap()).await.whole);
    let http2: Vec<bool> = server.requests().iter().map(|request| request.http2).collect();
    assert_eq!(http2, [true, true, false]);
    assert!(connect("other.test", b"h2").await.is_err());
}

#[tokio::test]
async fn requests_and_lifetime_are_limited() {
    let server = FakeModelServer::builder().most_requests(1).start().await.unwrap();
    assert_eq!(send_http1(&server, post(CHAT, &json!({}))).await.status, 200);
    assert_eq!(send_http1(&server, post(CHAT, &json!({}))).await.status, 508);
    let address = server.address();
    drop(server);
    tokio::time::timeout(Duration::from_secs(5), async {
        while TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("the port is closed after the server is gone");
}
