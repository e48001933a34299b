//! Tests models over a real connection: a server that misbehaves, and a client that must not.

use std::collections::HashMap;
use std::error::Error as _;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ralph_core::price::TokenUsage;
use ralph_core::profile::ProviderProtocol;
use ralph_core::secret::Secret;
use ralph_engine::model::scripted_model::{ConversationScript, ScriptLoadError, ScriptedModel};
use ralph_engine::model::{
    CallCancellation, CallKey, Error, KeyScheme, LanguageModel, LostCallPolicy, MAX_CALLS, ModelCallFailure,
    ModelErrorClass, ModelFinishReason, ModelReply, ModelRequest, RemoteEndpoint, RemoteModel, RetryDecision,
    RetryPace, call_with_retry, client, estimate_usage, retry_decision,
};
use ralph_testkit::model_server::{FakeModelServer, ModelBehaviour};
use reqwest::Client;
use serde_json::{Value, json};

const KEY: &str = "sk-test-9f8e7d6c5b4a";
const FIRST: CallKey = CallKey { iteration: 1, call: 0, diagnosis: None, attempt: 0 };

fn request() -> ModelRequest {
    ModelRequest {
        system: "Answer in JSON.".into(),
        user: "What next?".into(),
        history: Vec::new(),
        max_output_tokens: 256,
        temperature: Some(0.2),
        json: false,
        on_lost: LostCallPolicy::Retry,
        timeout: Duration::from_secs(20),
        extra: serde_json::Map::new(),
    }
}

fn remote(client: Client, base_url: String, wire: ProviderProtocol) -> RemoteModel {
    let endpoint = RemoteEndpoint {
        name: "zai/glm-4.7".into(),
        model: "glm-4.7".into(),
        wire,
        base_url,
        api_version: None,
        key: Some(Secret::new(format!("{KEY}\n"))),
        scheme: KeyScheme::Key,
    };
    RemoteModel::new(client, endpoint).expect("the endpoint is sound")
}

fn chat(client: Client, base_url: String) -> RemoteModel {
    remote(client, base_url, ProviderProtocol::Chat)
}

/// A model on a paused clock. Time stands still while bytes are in flight, and advances when the server has gone
/// silent; so a slow machine cannot turn an answer into a timeout, and a timeout costs no real time.
#[derive(Debug)]
struct PausedClockModel<'a> {
    remote: RemoteModel,
    server: &'a FakeModelServer,
    silent: AtomicUsize,
}

impl<'a> PausedClockModel<'a> {
    fn new(server: &'a FakeModelServer) -> Self {
        Self::with(client(None).expect("a plain client"), server)
    }

    fn with(client: Client, server: &'a FakeModelServer) -> Self {
        Self::on(client, server, ProviderProtocol::Chat)
    }

    fn on(client: Client, server: &'a FakeModelServer, wire: ProviderProtocol) -> Self {
        Self { remote: remote(client, server.base_url(), wire), server, silent: AtomicUsize::new(0) }
    }
}

#[async_trait]
impl LanguageModel for PausedClockModel<'_> {
    fn name(&self) -> &str {
        self.remote.name()
    }

    fn is_remote(&self) -> bool {
        self.remote.is_remote()
    }

    async fn call(&self, request: &ModelRequest, key: CallKey) -> Result<ModelReply, Error> {
        // A paused clock does not advance while blocking work is running.
        let (release, held) = std::sync::mpsc::channel::<()>();
        let hold = tokio::task::spawn_blocking(move || held.recv().is_err());
        let silence = async {
            let silent = self.server.wait_for_unanswered(self.silent.load(Ordering::Relaxed)).await;
            self.silent.store(silent, Ordering::Relaxed);
            tokio::time::advance(request.timeout).await;
            std::future::pending::<()>().await;
        };
        let outcome = tokio::select! {
            outcome = self.remote.call(request, key) => outcome,
            () = silence => unreachable!("waits for ever"),
        };
        drop(release);
        assert!(hold.await.expect("it only waits"));
        outcome
    }
}

/// Everything an error shows in any format: none of it may contain a key.
fn error_chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut all = format!("{error} {error:?} {error:#?}");
    let mut source = error.source();
    while let Some(cause) = source {
        write!(all, " {cause} {cause:?}").expect("strings take everything");
        source = cause.source();
    }
    all
}

#[tokio::test(start_paused = true)]
async fn a_successful_answer() {
    let usage = json!({"prompt_tokens": 50, "completion_tokens": 9, "total_tokens": 59,
        "prompt_tokens_details": {"cached_tokens": 20}, "completion_tokens_details": {"reasoning_tokens": 3}});
    let server = FakeModelServer::with_behaviours([ModelBehaviour::Ok { content: "{}".into(), usage }]).await.unwrap();
    let reply = PausedClockModel::new(&server).call(&ModelRequest { json: true, ..request() }, FIRST).await.unwrap();
    let raw_bytes = reply.raw_bytes;
    assert!(raw_bytes > 100, "{raw_bytes}");
    assert_eq!(
        reply,
        ModelReply {
            text: "{}".into(),
            usage: TokenUsage { input: 30, cached_input: 20, output: 9, reasoning: 3, ..TokenUsage::default() },
            usage_reported: true,
            model: "glm-4.7".into(),
            finish: ModelFinishReason::Stop,
            raw_bytes,
        }
    );

    let received = server.requests();
    assert_eq!(received.len(), 1);
    let sent = &received[0];
    assert_eq!((sent.method.as_str(), sent.path.as_str()), ("POST", "/v1/chat/completions"));
    assert_eq!(sent.header("authorization"), Some(format!("Bearer {KEY}").as_str()));
    assert_eq!(sent.header("content-type"), Some("application/json"));
    assert_eq!(
        sent.json(),
        json!({"model": "glm-4.7", "messages": [{"role": "system", "content": "Answer in JSON."},
            {"role": "user", "content": "What next?"}], "max_tokens": 256, "temperature": 0.2,
            "response_format": {"type": "json_object"}, "stream": false})
    );
}

/// Faults of a server, each with the class and message that the client makes of it.
fn faults() -> Vec<(ModelBehaviour, ModelErrorClass, &'static str)> {
    let echo = format!("wrong key {KEY}, said {KEY}");
    let raw = |body: &str| ModelBehaviour::Raw { body: body.into(), content_type: "application/json".into() };
    let zai = |code: &str| {
        let body = json!({"error": {"code": code, "message": format!("no {KEY}")}}).to_string();
        ModelBehaviour::Status { code: 429, body, headers: Vec::new() }
    };
    let busy = ModelErrorClass::Overloaded { reset: None };
    let rate = |seconds| ModelErrorClass::RateLimited { reset: Some(Duration::from_secs(seconds)) };
    vec![
        (ModelBehaviour::rate_limited("7"), rate(7), "`zai/glm-4.7` answered 429: slow down"),
        (zai("1302"), ModelErrorClass::RateLimited { reset: None }, "`zai/glm-4.7` answered 429: no …"),
        (zai("1113"), ModelErrorClass::Quota, "`zai/glm-4.7` answered 429: no …"),
        (ModelBehaviour::error(529, "overloaded_error", "Overloaded"), busy, "`zai/glm-4.7` answered 529: Overloaded"),
        (ModelBehaviour::status(500), ModelErrorClass::ServerError, "`zai/glm-4.7` answered 500: no reason given"),
        (
            ModelBehaviour::html(502),
            ModelErrorClass::ServerError,
            "`zai/glm-4.7` answered 502: an HTML page, `502 Bad Gateway`",
        ),
        (
            ModelBehaviour::error(401, "invalid_api_key", &echo),
            ModelErrorClass::Auth,
            "`zai/glm-4.7` answered 401: wrong key …, said …",
        ),
        (
            ModelBehaviour::Status { code: 500, body: format!("panic: Bearer {KEY}"), headers: Vec::new() },
            ModelErrorClass::ServerError,
            "`zai/glm-4.7` answered 500: panic: Bearer …",
        ),
        (ModelBehaviour::Hang, ModelErrorClass::Timeout, "`zai/glm-4.7` did not answer within 20s"),
        (ModelBehaviour::Stall, ModelErrorClass::Timeout, "`zai/glm-4.7` did not answer within 20s"),
        (ModelBehaviour::Cut, ModelErrorClass::BadAnswer, "the answer of `zai/glm-4.7` was cut after"),
        (ModelBehaviour::Reset, ModelErrorClass::Connect, "the connection to `127.0.0.1:"),
        (
            ModelBehaviour::invalid_json(),
            ModelErrorClass::BadAnswer,
            r#"the answer of `zai/glm-4.7` is not JSON: {"choices": [{"message": {"content": "hi"}"#,
        ),
        (
            raw(&format!("<html><title>hello {KEY}</title>")),
            ModelErrorClass::BadAnswer,
            "the answer of `zai/glm-4.7` is an HTML page: an HTML page, `hello …`",
        ),
        (raw(""), ModelErrorClass::BadAnswer, "the answer of `zai/glm-4.7` is empty"),
        (
            raw(r#"{"choices":[]}"#),
            ModelErrorClass::BadAnswer,
            "the answer of `zai/glm-4.7` is JSON without a message: {",
        ),
        (
            raw(&json!({"error": {"code": 429, "message": KEY}}).to_string()),
            ModelErrorClass::RateLimited { reset: None },
            "`zai/glm-4.7` answered 429: …",
        ),
    ]
}

/// Every protocol that is used over a network.
const WIRES: [ProviderProtocol; 4] =
    [ProviderProtocol::Chat, ProviderProtocol::Responses, ProviderProtocol::Anthropic, ProviderProtocol::Gemini];

#[tokio::test(start_paused = true)]
async fn every_protocol_works() {
    let bearer = format!("Bearer {KEY}");
    for (wire, path, header, key) in [
        (ProviderProtocol::Chat, "/v1/chat/completions", "authorization", bearer.as_str()),
        (ProviderProtocol::Responses, "/v1/responses", "authorization", &bearer),
        (ProviderProtocol::Anthropic, "/v1/messages", "x-api-key", KEY),
        (ProviderProtocol::Gemini, "/v1/models/glm-4.7:generateContent", "x-goog-api-key", KEY),
        (ProviderProtocol::Azure, "/v1/openai/deployments/glm-4.7/chat/completions", "api-key", KEY),
    ] {
        let server = FakeModelServer::with_behaviours([ModelBehaviour::ok("{}")]).await.unwrap();
        let model = PausedClockModel::on(client(None).unwrap(), &server, wire);
        let reply = model.call(&ModelRequest { json: true, ..request() }, FIRST).await.unwrap();
        let usage = TokenUsage { input: 12, output: 5, ..TokenUsage::default() };
        assert_eq!((reply.text.as_str(), reply.usage, reply.usage_reported), ("{}", usage, true), "{wire:?}");
        assert_eq!((reply.finish, reply.model.as_str()), (ModelFinishReason::Stop, "glm-4.7"), "{wire:?}");
        let sent = &server.requests()[0];
        assert_eq!((sent.path.as_str(), sent.header(header)), (path, Some(key)), "{wire:?}");
        assert_eq!(sent.headers.iter().filter(|(_, value)| value.contains(KEY)).count(), 1, "{wire:?}: the key once");
        assert!(!sent.json().to_string().contains(KEY));
        assert_eq!(server.answered(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn faults_are_classified_in_every_protocol() {
    let client = client(None).unwrap();
    for wire in WIRES {
        for (behaviour, class, _) in faults() {
            let server = FakeModelServer::with_behaviours([behaviour.clone()]).await.unwrap();
            let error = PausedClockModel::on(client.clone(), &server, wire).call(&request(), FIRST).await.unwrap_err();
            assert_eq!(error.class(), class, "{wire:?} {behaviour:?}: {error}");
            assert!(!error_chain(&error).contains(KEY), "{wire:?} {behaviour:?}: {error:?}");
            assert_eq!((server.requests().len(), server.answered()), (1, 0), "{wire:?} {behaviour:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_json_field_is_dropped_where_it_is_refused() {
    for wire in WIRES {
        let message = "response_format, text.format and responseMimeType are not supported";
        let refusal = ModelBehaviour::error(400, "unsupported_parameter", message);
        let server = FakeModelServer::with_behaviours([refusal, ModelBehaviour::ok("hi")]).await.unwrap();
        let model = PausedClockModel::on(client(None).unwrap(), &server, wire);
        let outcome = model.call(&ModelRequest { json: true, ..request() }, FIRST).await;
        let asked = server.requests().len();
        match wire {
            // This protocol has no field that could be dropped.
            ProviderProtocol::Anthropic => {
                assert_eq!((outcome.unwrap_err().class(), asked), (ModelErrorClass::BadRequest, 1));
            }
            _ => assert_eq!((outcome.unwrap().text.as_str(), asked), ("hi", 2), "{wire:?}"),
        }
    }
}

#[tokio::test]
async fn an_answer_in_small_pieces_is_reassembled() {
    let drip =
        ModelBehaviour::PacedChunks { content: "piece by piece".into(), pieces: 20, pause: Duration::from_millis(2) };
    let server = FakeModelServer::with_behaviours([drip]).await.unwrap();
    let reply = chat(client(None).unwrap(), server.base_url()).call(&request(), FIRST).await.unwrap();
    assert_eq!((reply.text.as_str(), server.answered()), ("piece by piece", 1));
}

#[tokio::test(start_paused = true)]
async fn faults_are_classified() {
    for (behaviour, class, message) in faults() {
        let server = FakeModelServer::with_behaviours([behaviour.clone()]).await.unwrap();
        let error = PausedClockModel::new(&server).call(&request(), FIRST).await.unwrap_err();
        assert_eq!(error.class(), class, "{behaviour:?}: {error}");
        assert!(error.to_string().starts_with(message), "{behaviour:?}: {error}");
        assert!(!error_chain(&error).contains(KEY), "{behaviour:?}: {error:?}");
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_huge_answer_is_not_read_to_its_end() {
    let server = FakeModelServer::with_behaviours([
        ModelBehaviour::Huge { bytes: 9 << 20 },
        ModelBehaviour::Huge { bytes: 7 << 20 },
    ])
    .await
    .unwrap();
    let model = PausedClockModel::new(&server);
    let error = model.call(&request(), FIRST).await.unwrap_err();
    assert_eq!(
        (error.to_string().as_str(), error.class()),
        ("the answer of `zai/glm-4.7` is larger than 8 MiB", ModelErrorClass::BadAnswer)
    );
    assert_eq!(model.call(&request(), FIRST).await.unwrap().text.len(), 7 << 20);
}

#[tokio::test(start_paused = true)]
async fn implausible_usage_is_estimated() {
    let content = r#"{"usage":{"prompt_tokens":1,"completion_tokens":1}}"#;
    let guess = estimate_usage(&request(), content.len());
    for usage in [
        Value::Null,
        json!({"prompt_tokens": -3, "completion_tokens": 5}),
        json!({"prompt_tokens": "12", "completion_tokens": "5"}),
        json!({"prompt_tokens": 12}),
        json!({"prompt_tokens": 12, "completion_tokens": 0}),
        json!("none"),
    ] {
        let server =
            FakeModelServer::with_behaviours([ModelBehaviour::Ok { content: content.into(), usage: usage.clone() }])
                .await
                .unwrap();
        let reply = PausedClockModel::new(&server).call(&request(), FIRST).await.unwrap();
        assert_eq!((reply.text.as_str(), reply.usage, reply.usage_reported), (content, guess, false), "{usage}");
    }
    let server = FakeModelServer::with_behaviours([ModelBehaviour::wrong_content_type(content)]).await.unwrap();
    assert_eq!(PausedClockModel::new(&server).call(&request(), FIRST).await.unwrap().text, content);
}

#[tokio::test(start_paused = true)]
async fn refused_fields_are_omitted_from_then_on() {
    let server = FakeModelServer::with_behaviours([ModelBehaviour::NoJsonMode { content: "hi".into() }]).await.unwrap();
    let model = PausedClockModel::new(&server);
    let asking = ModelRequest { json: true, ..request() };
    for _ in 0..2 {
        assert_eq!(model.call(&asking, FIRST).await.unwrap().text, "hi");
    }
    let modes: Vec<bool> = server.requests().iter().map(|sent| sent.json().get("response_format").is_some()).collect();
    assert_eq!(modes, [true, false, false]);

    let complaint = "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead.";
    let refusal = ModelBehaviour::error(400, "unsupported_parameter", complaint);
    let server = FakeModelServer::with_behaviours([refusal.clone(), ModelBehaviour::ok("hi")]).await.unwrap();
    assert_eq!(PausedClockModel::new(&server).call(&request(), FIRST).await.unwrap().text, "hi");
    let caps: Vec<Option<u64>> =
        server.requests().iter().map(|sent| sent.json().get("max_completion_tokens")?.as_u64()).collect();
    assert_eq!(caps, [None, Some(256)]);

    // A server that rejects everything is called no more than once per field.
    let server = FakeModelServer::with_behaviours([refusal]).await.unwrap();
    assert_eq!(
        PausedClockModel::new(&server).call(&request(), FIRST).await.unwrap_err().class(),
        ModelErrorClass::BadRequest
    );
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn no_server_is_listening() {
    let server = FakeModelServer::with_behaviours([]).await.unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = chat(client(None).unwrap(), format!("http://{free}/v1")).call(&request(), FIRST).await.unwrap_err();
    assert_eq!(
        (error.class(), error.may_have_cost(), error.to_string()),
        (ModelErrorClass::Connect, false, format!("could not connect to `{free}` for `zai/glm-4.7`"))
    );
    assert!(error.source().is_some());
    assert!(!error_chain(&error).contains(KEY));
    drop(server);
}

#[tokio::test]
async fn a_server_that_ends_closes_its_connections() {
    let server = FakeModelServer::with_behaviours([ModelBehaviour::Hang]).await.unwrap();
    let model = chat(client(None).unwrap(), server.base_url());
    let asking = request();
    let (outcome, ()) = tokio::join!(model.call(&asking, FIRST), async {
        server.wait_for_unanswered(0).await;
        drop(server);
    });
    assert_eq!(outcome.unwrap_err().class(), ModelErrorClass::Connect);
}

#[tokio::test(start_paused = true)]
async fn a_redirect_gets_neither_prompt_nor_key() {
    let thief = FakeModelServer::with_behaviours([ModelBehaviour::ok("hi")]).await.unwrap();
    let server =
        FakeModelServer::with_behaviours([ModelBehaviour::redirect(&format!("{}/chat/completions", thief.base_url()))])
            .await
            .unwrap();
    assert_eq!(
        PausedClockModel::new(&server).call(&request(), FIRST).await.unwrap_err().class(),
        ModelErrorClass::NotFoundModel
    );
    assert_eq!(thief.requests(), []);
}

async fn ask(
    model: &dyn LanguageModel,
    stop: &CallCancellation,
) -> (Result<ModelReply, ModelCallFailure>, Vec<(ModelErrorClass, RetryDecision)>) {
    let mut seen = Vec::new();
    let outcome = call_with_retry(model, &request(), FIRST, RetryPace::default(), stop, &mut |error, next| {
        assert!(!error_chain(error).contains(KEY), "{error:?}");
        seen.push((error.class(), *next));
    })
    .await;
    (outcome, seen)
}

#[tokio::test(start_paused = true)]
async fn temporary_faults_are_retried() {
    let server = FakeModelServer::with_behaviours([
        ModelBehaviour::rate_limited("7"),
        ModelBehaviour::Cut,
        ModelBehaviour::Hang,
        ModelBehaviour::ok("done"),
    ])
    .await
    .unwrap();
    let start = tokio::time::Instant::now();
    let (outcome, seen) = ask(&PausedClockModel::new(&server), &CallCancellation::default()).await;
    assert_eq!(outcome.unwrap().text, "done");
    let limited = ModelErrorClass::RateLimited { reset: Some(Duration::from_secs(7)) };
    let classes: Vec<ModelErrorClass> = seen.iter().map(|(class, _)| *class).collect();
    assert_eq!(classes, [limited, ModelErrorClass::BadAnswer, ModelErrorClass::Timeout]);
    // Seven seconds as stated, twenty of silence, and two short pauses.
    let waited = start.elapsed();
    assert!((27_500..=29_000).contains(&waited.as_millis()), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_long_reset_parks() {
    let server = FakeModelServer::with_behaviours([ModelBehaviour::rate_limited("3600")]).await.unwrap();
    let (outcome, seen) = ask(&PausedClockModel::new(&server), &CallCancellation::default()).await;
    let failure = outcome.unwrap_err();
    let hour = Duration::from_hours(1);
    let class = ModelErrorClass::RateLimited { reset: Some(hour) };
    assert_eq!((failure.class, failure.attempts, failure.park), (class, 1, Some(hour)));
    assert_eq!(seen, [(class, RetryDecision::Park { until: hour })]);
    assert_eq!(failure.to_string(), "no answer from the model after 1 call");
}

#[tokio::test]
async fn a_stop_ends_the_call() {
    let server = FakeModelServer::with_behaviours([ModelBehaviour::Hang]).await.unwrap();
    let model = chat(client(None).unwrap(), server.base_url());
    let stop = CallCancellation::default();
    let ((outcome, seen), ()) = tokio::join!(ask(&model, &stop), async {
        server.wait_for_unanswered(0).await;
        // Cancelling waits does not cancel a call.
        stop.wait.cancel();
        stop.now.cancel();
    });
    let failure = outcome.unwrap_err();
    assert_eq!((failure.class, failure.attempts, failure.park), (ModelErrorClass::Stopped, 1, None));
    assert!(failure.error.may_have_cost());
    assert_eq!(seen, []);

    // Stopped before: no call is made.
    let (outcome, _) = ask(&model, &stop).await;
    let failure = outcome.unwrap_err();
    assert_eq!((failure.class, failure.attempts, failure.error.may_have_cost()), (ModelErrorClass::Stopped, 0, false));
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_the_wait() {
    let ends: [fn(&CallCancellation); 2] = [|stop| stop.now.cancel(), |stop| stop.wait.cancel()];
    for end in ends {
        let server = FakeModelServer::with_behaviours([ModelBehaviour::rate_limited("30")]).await.unwrap();
        let (stop, start) = (CallCancellation::default(), tokio::time::Instant::now());
        let mut on_attempt = |_: &Error, _: &RetryDecision| end(&stop);
        let model = PausedClockModel::new(&server);
        let outcome = call_with_retry(&model, &request(), FIRST, RetryPace::default(), &stop, &mut on_attempt).await;
        let failure = outcome.unwrap_err();
        // No call was in flight, so nothing is charged.
        assert_eq!((failure.class, failure.error.may_have_cost()), (ModelErrorClass::Stopped, false));
        assert_eq!((server.requests().len(), start.elapsed()), (1, Duration::ZERO));
    }
}

/// A small generator with a seed, so that a failing sequence can be repeated.
struct TroubleRandom(u64);

impl TroubleRandom {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let bound = u64::try_from(bound).expect("bounds are small");
        usize::try_from((mixed ^ (mixed >> 31)) % bound).expect("below a small bound")
    }
}

/// Returns the expected end of a sequence of faults: its class (none for an answer), the calls, and whether it parks.
fn expected_end(faults: &[Option<ModelErrorClass>]) -> (Option<ModelErrorClass>, u32, bool) {
    let mut calls = 0;
    let mut seen: HashMap<&str, u32> = HashMap::new();
    loop {
        let at = usize::try_from(calls).expect("calls are few").min(faults.len() - 1);
        calls += 1;
        let Some(class) = faults[at] else { return (None, calls, false) };
        let times = seen.entry(class.name()).or_default();
        *times += 1;
        match retry_decision(class, *times, 0.0) {
            RetryDecision::Retry { .. } if calls < MAX_CALLS => (),
            RetryDecision::Retry { .. } | RetryDecision::GiveUp => return (Some(class), calls, false),
            RetryDecision::Park { .. } => return (Some(class), calls, true),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn any_sequence_of_faults_ends_as_expected() {
    let mut kinds: Vec<(ModelBehaviour, Option<ModelErrorClass>)> =
        faults().into_iter().map(|(behaviour, class, _)| (behaviour, Some(class))).collect();
    kinds.push((ModelBehaviour::ok("done"), None));
    // Only temporary faults let a sequence grow long, so they come more often.
    let temporary: Vec<usize> = (0..kinds.len())
        .filter(|at| {
            kinds[*at].1.is_some_and(|class| matches!(retry_decision(class, 1, 0.0), RetryDecision::Retry { .. }))
        })
        .collect();
    let client = client(None).unwrap();
    let mut longest = 0;
    for seed in 0..200 {
        let mut random = TroubleRandom(seed);
        let length = 1 + random.below(16);
        let sequence: Vec<(ModelBehaviour, Option<ModelErrorClass>)> = (0..length)
            .map(|_| match random.below(4) {
                0 => kinds[random.below(kinds.len())].clone(),
                _ => kinds[temporary[random.below(temporary.len())]].clone(),
            })
            .collect();
        let (behaviours, classes): (Vec<_>, Vec<_>) = sequence.into_iter().unzip();
        let (class, calls, parks) = expected_end(&classes);

        let server = FakeModelServer::with_behaviours(behaviours).await.unwrap();
        let start = tokio::time::Instant::now();
        let (outcome, seen) = ask(&PausedClockModel::with(client.clone(), &server), &CallCancellation::default()).await;
        let got = match &outcome {
            Ok(reply) => {
                assert_eq!(reply.text, "done", "seed {seed}");
                (None, u32::try_from(seen.len()).unwrap() + 1, false)
            }
            Err(failure) => {
                assert!(!error_chain(failure).contains(KEY), "seed {seed}: {failure:?}");
                (Some(failure.class), failure.attempts, failure.park.is_some())
            }
        };
        assert_eq!(got, (class, calls, parks), "seed {seed}: {seen:?}");
        assert_eq!(server.requests().len(), usize::try_from(calls).unwrap(), "seed {seed}");
        assert!(start.elapsed() <= MAX_CALLS * Duration::from_secs(20 + 60), "seed {seed}");
        longest = longest.max(calls);
    }
    assert!(longest > 6, "the sequences are too short: {longest}");
}

#[tokio::test(start_paused = true)]
async fn a_script_answers_in_turn() {
    let script = ConversationScript::parse(concat!(
        "{\"format\":1}\n",
        "{\"text\":\"one\",\"usage\":{\"input\":7,\"output\":2},\"model\":\"glm-4.7\"}\n",
        "{\"json\":{\"summary\":\"two\"},\"fault\":{\"status\":429,\"retry_after_s\":5,\"times\":2}}\n",
        "{\"text\":\"late\",\"delay_ms\":60000}\n",
        "{\"text\":\"again\",\"when\":{\"call\":1}}\n",
        "{\"fault\":{\"status\":429,\"body\":\"{\\\"error\\\":{\\\"code\\\":\\\"insufficient_quota\\\"}}\"}}\n",
    ))
    .unwrap();
    let model = ScriptedModel::new("demo.jsonl", "cheap", script);
    assert_eq!((model.name(), model.is_remote()), ("scripted/demo.jsonl", false));
    let reply = model.call(&request(), FIRST).await.unwrap();
    assert_eq!(
        reply,
        ModelReply {
            text: "one".into(),
            usage: TokenUsage { input: 7, output: 2, ..TokenUsage::default() },
            usage_reported: true,
            model: "glm-4.7".into(),
            finish: ModelFinishReason::Stop,
            raw_bytes: 3,
        }
    );
    // A resumed run makes the call again and gets the same reply.
    assert_eq!(model.call(&request(), FIRST).await.unwrap(), reply);
    assert_eq!(model.call(&request(), CallKey::new(1, 1)).await.unwrap().text, "again");

    let stop = CallCancellation::default();
    let start = tokio::time::Instant::now();
    let mut faults = 0;
    let reply =
        call_with_retry(&model, &request(), CallKey::new(2, 0), RetryPace::default(), &stop, &mut |_, _| faults += 1)
            .await
            .unwrap();
    assert_eq!((reply.text.as_str(), faults, start.elapsed()), (r#"{"summary":"two"}"#, 2, Duration::from_secs(10)));
    assert_eq!((reply.usage, reply.usage_reported), (estimate_usage(&request(), reply.text.len()), false));

    for (iteration, class, calls) in
        [(3, ModelErrorClass::Timeout, 3), (4, ModelErrorClass::Quota, 1), (5, ModelErrorClass::ScriptEnded, 1)]
    {
        let key = CallKey::new(iteration, 0);
        let failure =
            call_with_retry(&model, &request(), key, RetryPace::default(), &stop, &mut |_, _| ()).await.unwrap_err();
        assert_eq!((failure.class, failure.attempts), (class, calls), "iteration {iteration}");
    }
    let error = model.call(&request(), CallKey::new(9, 0)).await.unwrap_err();
    assert_eq!(error.to_string(), "`scripted/demo.jsonl` has no reply for iteration 9, call 0");
    assert_eq!(
        error.hint().as_deref(),
        Some("add a reply for iteration 9, call 0 to the script, or end it with a reply that has `\"repeat\": true`")
    );
}

#[tokio::test]
async fn a_script_that_cannot_be_loaded_reports_where_and_why() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("demo.jsonl");
    let shown = file.display().to_string();
    let error = ScriptedModel::load(&file, "cheap").await.unwrap_err();
    assert!(matches!(error, ScriptLoadError::Read { .. }));
    assert_eq!(error.to_string(), format!("could not read the script `{shown}`"));

    std::fs::write(&file, "{\"format\":1}\n{}\n").unwrap();
    let error = ScriptedModel::load(&file, "cheap").await.unwrap_err();
    assert_eq!(
        (error.to_string(), error.source().map(ToString::to_string), error.hint()),
        (
            format!("the script `{shown}` cannot be played"),
            Some("line 2: a reply needs `text`, `json` or `fault`".into()),
            format!("{shown}:2: add a `\"text\"`"),
        )
    );

    std::fs::write(&file, "{\"format\":1}\n{\"text\":\"hi\"}\n").unwrap();
    assert_eq!(ScriptedModel::load(&file, "cheap").await.unwrap().name(), "scripted/demo.jsonl");
}
