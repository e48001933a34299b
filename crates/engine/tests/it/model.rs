//! Models over a real wire: a server that misbehaves, a client that must not.

use std::collections::HashMap;
use std::error::Error as _;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ralph_core::price::Usage;
use ralph_core::profile::Wire;
use ralph_core::secret::Secret;
use ralph_engine::model::scripted::{LoadError, Script, Scripted};
use ralph_engine::model::{
    CallKey, Class, Endpoint, Error, Failure, Finish, Lost, MAX_CALLS, Model, Next, Pace, Remote, Reply, Request,
    Scheme, Stop, call_with_retry, client, estimate, policy,
};
use ralph_testkit::model::{Behaviour, Server};
use reqwest::Client;
use serde_json::{Value, json};

const KEY: &str = "sk-test-9f8e7d6c5b4a";
const FIRST: CallKey = CallKey { iteration: 1, call: 0, diagnosis: None, attempt: 0 };

fn request() -> Request {
    Request {
        system: "Answer in JSON.".into(),
        user: "What next?".into(),
        history: Vec::new(),
        max_output_tokens: 256,
        temperature: Some(0.2),
        json: false,
        lost: Lost::Retry,
        timeout: Duration::from_secs(20),
        extra: serde_json::Map::new(),
    }
}

fn remote(client: Client, base_url: String, wire: Wire) -> Remote {
    let endpoint = Endpoint {
        name: "zai/glm-4.7".into(),
        model: "glm-4.7".into(),
        wire,
        base_url,
        api_version: None,
        key: Some(Secret::new(format!("{KEY}\n"))),
        scheme: Scheme::Key,
    };
    Remote::new(client, endpoint).expect("the endpoint is sound")
}

fn chat(client: Client, base_url: String) -> Remote {
    remote(client, base_url, Wire::Chat)
}

/// A model on a paused clock. Time stands still while bytes are under way, and passes when the server has gone silent;
/// so a slow machine cannot turn an answer into a timeout, and a timeout costs no time.
#[derive(Debug)]
struct Still<'a> {
    remote: Remote,
    server: &'a Server,
    silent: AtomicUsize,
}

impl<'a> Still<'a> {
    fn new(server: &'a Server) -> Self {
        Self::with(client(None).expect("a plain client"), server)
    }

    fn with(client: Client, server: &'a Server) -> Self {
        Self::on(client, server, Wire::Chat)
    }

    fn on(client: Client, server: &'a Server, wire: Wire) -> Self {
        Self { remote: remote(client, server.url(), wire), server, silent: AtomicUsize::new(0) }
    }
}

#[async_trait]
impl Model for Still<'_> {
    fn name(&self) -> &str {
        self.remote.name()
    }

    fn remote(&self) -> bool {
        self.remote.remote()
    }

    async fn call(&self, request: &Request, key: CallKey) -> Result<Reply, Error> {
        // A paused clock does not move by itself while blocking work is under way.
        let (release, held) = std::sync::mpsc::channel::<()>();
        let hold = tokio::task::spawn_blocking(move || held.recv().is_err());
        let silence = async {
            let silent = self.server.silent(self.silent.load(Ordering::Relaxed)).await;
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

/// Everything an error tells, to whomever asks: what must not hold a key.
fn told(error: &(dyn std::error::Error + 'static)) -> String {
    let mut all = format!("{error} {error:?} {error:#?}");
    let mut source = error.source();
    while let Some(cause) = source {
        write!(all, " {cause} {cause:?}").expect("strings take everything");
        source = cause.source();
    }
    all
}

#[tokio::test(start_paused = true)]
async fn a_fine_answer() {
    let usage = json!({"prompt_tokens": 50, "completion_tokens": 9, "total_tokens": 59,
        "prompt_tokens_details": {"cached_tokens": 20}, "completion_tokens_details": {"reasoning_tokens": 3}});
    let server = Server::start([Behaviour::Ok { content: "{}".into(), usage }]).await.unwrap();
    let reply = Still::new(&server).call(&Request { json: true, ..request() }, FIRST).await.unwrap();
    let raw_bytes = reply.raw_bytes;
    assert!(raw_bytes > 100, "{raw_bytes}");
    assert_eq!(
        reply,
        Reply {
            text: "{}".into(),
            usage: Usage { input: 30, cached_input: 20, output: 9, reasoning: 3, ..Usage::default() },
            usage_reported: true,
            model: "glm-4.7".into(),
            finish: Finish::Stop,
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
        sent.body,
        json!({"model": "glm-4.7", "messages": [{"role": "system", "content": "Answer in JSON."},
            {"role": "user", "content": "What next?"}], "max_tokens": 256, "temperature": 0.2,
            "response_format": {"type": "json_object"}, "stream": false})
    );
}

/// One trouble on the wire, and what the client makes of it.
fn troubles() -> Vec<(Behaviour, Class, &'static str)> {
    let echo = format!("wrong key {KEY}, said {KEY}");
    let raw = |body: &str| Behaviour::Raw { body: body.into(), content_type: "application/json".into() };
    let zai = |code: &str| {
        let body = json!({"error": {"code": code, "message": format!("no {KEY}")}}).to_string();
        Behaviour::Status { code: 429, body, headers: Vec::new() }
    };
    let busy = Class::Overloaded { reset: None };
    let rate = |seconds| Class::RateLimited { reset: Some(Duration::from_secs(seconds)) };
    vec![
        (Behaviour::rate_limited("7"), rate(7), "`zai/glm-4.7` answered 429: slow down"),
        (zai("1302"), Class::RateLimited { reset: None }, "`zai/glm-4.7` answered 429: no …"),
        (zai("1113"), Class::Quota, "`zai/glm-4.7` answered 429: no …"),
        (Behaviour::error(529, "overloaded_error", "Overloaded"), busy, "`zai/glm-4.7` answered 529: Overloaded"),
        (Behaviour::status(500), Class::ServerError, "`zai/glm-4.7` answered 500: no reason given"),
        (Behaviour::html(502), Class::ServerError, "`zai/glm-4.7` answered 502: an HTML page, `502 Bad Gateway`"),
        (
            Behaviour::error(401, "invalid_api_key", &echo),
            Class::Auth,
            "`zai/glm-4.7` answered 401: wrong key …, said …",
        ),
        (
            Behaviour::Status { code: 500, body: format!("panic: Bearer {KEY}"), headers: Vec::new() },
            Class::ServerError,
            "`zai/glm-4.7` answered 500: panic: Bearer …",
        ),
        (Behaviour::Hang, Class::Timeout, "`zai/glm-4.7` did not answer within 20s"),
        (Behaviour::Stall, Class::Timeout, "`zai/glm-4.7` did not answer within 20s"),
        (Behaviour::Cut, Class::BadAnswer, "the answer of `zai/glm-4.7` was cut after"),
        (Behaviour::Reset, Class::Connect, "the connection to `127.0.0.1:"),
        (
            Behaviour::invalid_json(),
            Class::BadAnswer,
            r#"the answer of `zai/glm-4.7` is not JSON: {"choices": [{"message": {"content": "hi"}"#,
        ),
        (
            raw(&format!("<html><title>hello {KEY}</title>")),
            Class::BadAnswer,
            "the answer of `zai/glm-4.7` is an HTML page: an HTML page, `hello …`",
        ),
        (raw(""), Class::BadAnswer, "the answer of `zai/glm-4.7` is empty"),
        (raw(r#"{"choices":[]}"#), Class::BadAnswer, "the answer of `zai/glm-4.7` is JSON without a message: {"),
        (
            raw(&json!({"error": {"code": 429, "message": KEY}}).to_string()),
            Class::RateLimited { reset: None },
            "`zai/glm-4.7` answered 429: …",
        ),
    ]
}

/// Every protocol that is spoken over a network.
const WIRES: [Wire; 4] = [Wire::Chat, Wire::Responses, Wire::Anthropic, Wire::Gemini];

#[tokio::test(start_paused = true)]
async fn every_protocol_is_spoken() {
    let bearer = format!("Bearer {KEY}");
    for (wire, path, header, key) in [
        (Wire::Chat, "/v1/chat/completions", "authorization", bearer.as_str()),
        (Wire::Responses, "/v1/responses", "authorization", &bearer),
        (Wire::Anthropic, "/v1/messages", "x-api-key", KEY),
        (Wire::Gemini, "/v1/models/glm-4.7:generateContent", "x-goog-api-key", KEY),
        (Wire::Azure, "/v1/openai/deployments/glm-4.7/chat/completions", "api-key", KEY),
    ] {
        let server = Server::start([Behaviour::ok("{}")]).await.unwrap();
        let model = Still::on(client(None).unwrap(), &server, wire);
        let reply = model.call(&Request { json: true, ..request() }, FIRST).await.unwrap();
        let usage = Usage { input: 12, output: 5, ..Usage::default() };
        assert_eq!((reply.text.as_str(), reply.usage, reply.usage_reported), ("{}", usage, true), "{wire:?}");
        assert_eq!((reply.finish, reply.model.as_str()), (Finish::Stop, "glm-4.7"), "{wire:?}");
        let sent = &server.requests()[0];
        assert_eq!((sent.path.as_str(), sent.header(header)), (path, Some(key)), "{wire:?}");
        assert_eq!(sent.headers.iter().filter(|(_, value)| value.contains(KEY)).count(), 1, "{wire:?}: the key once");
        assert!(!sent.body.to_string().contains(KEY));
        assert_eq!(server.answered(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn troubles_have_their_class_in_every_protocol() {
    let client = client(None).unwrap();
    for wire in WIRES {
        for (behaviour, class, _) in troubles() {
            let server = Server::start([behaviour.clone()]).await.unwrap();
            let error = Still::on(client.clone(), &server, wire).call(&request(), FIRST).await.unwrap_err();
            assert_eq!(error.class(), class, "{wire:?} {behaviour:?}: {error}");
            assert!(!told(&error).contains(KEY), "{wire:?} {behaviour:?}: {error:?}");
            assert_eq!((server.requests().len(), server.answered()), (1, 0), "{wire:?} {behaviour:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_wish_for_json_is_dropped_where_it_is_refused() {
    for wire in WIRES {
        let message = "response_format, text.format and responseMimeType are not supported";
        let refusal = Behaviour::error(400, "unsupported_parameter", message);
        let server = Server::start([refusal, Behaviour::ok("hi")]).await.unwrap();
        let model = Still::on(client(None).unwrap(), &server, wire);
        let outcome = model.call(&Request { json: true, ..request() }, FIRST).await;
        let asked = server.requests().len();
        match wire {
            // There is no such wish that could be dropped.
            Wire::Anthropic => assert_eq!((outcome.unwrap_err().class(), asked), (Class::BadRequest, 1)),
            _ => assert_eq!((outcome.unwrap().text.as_str(), asked), ("hi", 2), "{wire:?}"),
        }
    }
}

#[tokio::test]
async fn an_answer_in_small_pieces_is_put_together() {
    let drip = Behaviour::Drip { content: "piece by piece".into(), pieces: 20, pause: Duration::from_millis(2) };
    let server = Server::start([drip]).await.unwrap();
    let reply = chat(client(None).unwrap(), server.url()).call(&request(), FIRST).await.unwrap();
    assert_eq!((reply.text.as_str(), server.answered()), ("piece by piece", 1));
}

#[tokio::test(start_paused = true)]
async fn troubles_have_their_class() {
    for (behaviour, class, message) in troubles() {
        let server = Server::start([behaviour.clone()]).await.unwrap();
        let error = Still::new(&server).call(&request(), FIRST).await.unwrap_err();
        assert_eq!(error.class(), class, "{behaviour:?}: {error}");
        assert!(error.to_string().starts_with(message), "{behaviour:?}: {error}");
        assert!(!told(&error).contains(KEY), "{behaviour:?}: {error:?}");
        assert_eq!(server.requests().len(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_huge_answer_is_not_read_to_its_end() {
    let server = Server::start([Behaviour::Huge { bytes: 9 << 20 }, Behaviour::Huge { bytes: 7 << 20 }]).await.unwrap();
    let model = Still::new(&server);
    let error = model.call(&request(), FIRST).await.unwrap_err();
    assert_eq!(
        (error.to_string().as_str(), error.class()),
        ("the answer of `zai/glm-4.7` is larger than 8 MiB", Class::BadAnswer)
    );
    assert_eq!(model.call(&request(), FIRST).await.unwrap().text.len(), 7 << 20);
}

#[tokio::test(start_paused = true)]
async fn usage_that_cannot_be_true_is_estimated() {
    let content = r#"{"usage":{"prompt_tokens":1,"completion_tokens":1}}"#;
    let guess = estimate(&request(), content.len());
    for usage in [
        Value::Null,
        json!({"prompt_tokens": -3, "completion_tokens": 5}),
        json!({"prompt_tokens": "12", "completion_tokens": "5"}),
        json!({"prompt_tokens": 12}),
        json!({"prompt_tokens": 12, "completion_tokens": 0}),
        json!("none"),
    ] {
        let server = Server::start([Behaviour::Ok { content: content.into(), usage: usage.clone() }]).await.unwrap();
        let reply = Still::new(&server).call(&request(), FIRST).await.unwrap();
        assert_eq!((reply.text.as_str(), reply.usage, reply.usage_reported), (content, guess, false), "{usage}");
    }
    let server = Server::start([Behaviour::wrong_content_type(content)]).await.unwrap();
    assert_eq!(Still::new(&server).call(&request(), FIRST).await.unwrap().text, content);
}

#[tokio::test(start_paused = true)]
async fn refused_fields_are_left_out_from_then_on() {
    let server = Server::start([Behaviour::NoJsonMode { content: "hi".into() }]).await.unwrap();
    let model = Still::new(&server);
    let asking = Request { json: true, ..request() };
    for _ in 0..2 {
        assert_eq!(model.call(&asking, FIRST).await.unwrap().text, "hi");
    }
    let modes: Vec<bool> = server.requests().iter().map(|sent| sent.body.get("response_format").is_some()).collect();
    assert_eq!(modes, [true, false, false]);

    let complaint = "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead.";
    let refusal = Behaviour::error(400, "unsupported_parameter", complaint);
    let server = Server::start([refusal.clone(), Behaviour::ok("hi")]).await.unwrap();
    assert_eq!(Still::new(&server).call(&request(), FIRST).await.unwrap().text, "hi");
    let caps: Vec<Option<u64>> =
        server.requests().iter().map(|sent| sent.body.get("max_completion_tokens")?.as_u64()).collect();
    assert_eq!(caps, [None, Some(256)]);

    // A server that complains whatever is sent is asked no more than once per field.
    let server = Server::start([refusal]).await.unwrap();
    assert_eq!(Still::new(&server).call(&request(), FIRST).await.unwrap_err().class(), Class::BadRequest);
    assert_eq!(server.requests().len(), 2);
}

#[tokio::test]
async fn nobody_listens() {
    let server = Server::start([]).await.unwrap();
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = chat(client(None).unwrap(), format!("http://{free}/v1")).call(&request(), FIRST).await.unwrap_err();
    assert_eq!(
        (error.class(), error.may_have_cost(), error.to_string()),
        (Class::Connect, false, format!("could not connect to `{free}` for `zai/glm-4.7`"))
    );
    assert!(error.source().is_some());
    assert!(!told(&error).contains(KEY));
    drop(server);
}

#[tokio::test]
async fn a_server_that_ends_lets_go_of_its_clients() {
    let server = Server::start([Behaviour::Hang]).await.unwrap();
    let model = chat(client(None).unwrap(), server.url());
    let asking = request();
    let (outcome, ()) = tokio::join!(model.call(&asking, FIRST), async {
        server.silent(0).await;
        drop(server);
    });
    assert_eq!(outcome.unwrap_err().class(), Class::Overloaded { reset: None });
}

#[tokio::test(start_paused = true)]
async fn a_redirect_gets_neither_prompt_nor_key() {
    let thief = Server::start([Behaviour::ok("hi")]).await.unwrap();
    let server = Server::start([Behaviour::redirect(&format!("{}/chat/completions", thief.url()))]).await.unwrap();
    assert_eq!(Still::new(&server).call(&request(), FIRST).await.unwrap_err().class(), Class::NotFoundModel);
    assert_eq!(thief.requests(), []);
}

async fn ask(model: &dyn Model, stop: &Stop) -> (Result<Reply, Failure>, Vec<(Class, Next)>) {
    let mut seen = Vec::new();
    let outcome = call_with_retry(model, &request(), FIRST, Pace::default(), stop, &mut |error, next| {
        assert!(!told(error).contains(KEY), "{error:?}");
        seen.push((error.class(), *next));
    })
    .await;
    (outcome, seen)
}

#[tokio::test(start_paused = true)]
async fn trouble_passes() {
    let server = Server::start([Behaviour::rate_limited("7"), Behaviour::Cut, Behaviour::Hang, Behaviour::ok("done")])
        .await
        .unwrap();
    let start = tokio::time::Instant::now();
    let (outcome, seen) = ask(&Still::new(&server), &Stop::default()).await;
    assert_eq!(outcome.unwrap().text, "done");
    let limited = Class::RateLimited { reset: Some(Duration::from_secs(7)) };
    let classes: Vec<Class> = seen.iter().map(|(class, _)| *class).collect();
    assert_eq!(classes, [limited, Class::BadAnswer, Class::Timeout]);
    // Seven seconds as told, twenty of silence, and two short pauses.
    let waited = start.elapsed();
    assert!((27_500..=29_000).contains(&waited.as_millis()), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn a_long_reset_parks() {
    let server = Server::start([Behaviour::rate_limited("3600")]).await.unwrap();
    let (outcome, seen) = ask(&Still::new(&server), &Stop::default()).await;
    let failure = outcome.unwrap_err();
    let hour = Duration::from_hours(1);
    let class = Class::RateLimited { reset: Some(hour) };
    assert_eq!((failure.class, failure.attempts, failure.park), (class, 1, Some(hour)));
    assert_eq!(seen, [(class, Next::Park { until: hour })]);
    assert_eq!(failure.to_string(), "no answer from the model after 1 call");
}

#[tokio::test]
async fn a_stop_ends_the_call() {
    let server = Server::start([Behaviour::Hang]).await.unwrap();
    let model = chat(client(None).unwrap(), server.url());
    let stop = Stop::default();
    let ((outcome, seen), ()) = tokio::join!(ask(&model, &stop), async {
        server.silent(0).await;
        // Whoever only ends waits ends no call.
        stop.wait.cancel();
        stop.now.cancel();
    });
    let failure = outcome.unwrap_err();
    assert_eq!((failure.class, failure.attempts, failure.park), (Class::Stopped, 1, None));
    assert!(failure.error.may_have_cost());
    assert_eq!(seen, []);

    // Stopped before: nobody is asked.
    let (outcome, _) = ask(&model, &stop).await;
    let failure = outcome.unwrap_err();
    assert_eq!((failure.class, failure.attempts, failure.error.may_have_cost()), (Class::Stopped, 0, false));
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_stop_ends_the_wait() {
    let ends: [fn(&Stop); 2] = [|stop| stop.now.cancel(), |stop| stop.wait.cancel()];
    for end in ends {
        let server = Server::start([Behaviour::rate_limited("30")]).await.unwrap();
        let (stop, start) = (Stop::default(), tokio::time::Instant::now());
        let mut on_attempt = |_: &Error, _: &Next| end(&stop);
        let model = Still::new(&server);
        let outcome = call_with_retry(&model, &request(), FIRST, Pace::default(), &stop, &mut on_attempt).await;
        let failure = outcome.unwrap_err();
        // Nothing was under way, so nothing is paid for.
        assert_eq!((failure.class, failure.error.may_have_cost()), (Class::Stopped, false));
        assert_eq!((server.requests().len(), start.elapsed()), (1, Duration::ZERO));
    }
}

/// A small generator with a seed, so that a failing sequence can be played again.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let bound = u64::try_from(bound).expect("bounds are small");
        usize::try_from((mixed ^ (mixed >> 31)) % bound).expect("below a small bound")
    }
}

/// What should become of a sequence of troubles: the end's class (none for an answer), the calls, and the parking.
fn foresee(troubles: &[Option<Class>]) -> (Option<Class>, u32, bool) {
    let mut calls = 0;
    let mut seen: HashMap<&str, u32> = HashMap::new();
    loop {
        let at = usize::try_from(calls).expect("calls are few").min(troubles.len() - 1);
        calls += 1;
        let Some(class) = troubles[at] else { return (None, calls, false) };
        let times = seen.entry(class.name()).or_default();
        *times += 1;
        match policy(class, *times, 0.0) {
            Next::Retry { .. } if calls < MAX_CALLS => (),
            Next::Retry { .. } | Next::GiveUp => return (Some(class), calls, false),
            Next::Park { .. } => return (Some(class), calls, true),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn any_sequence_of_troubles_ends_as_it_should() {
    let mut kinds: Vec<(Behaviour, Option<Class>)> =
        troubles().into_iter().map(|(behaviour, class, _)| (behaviour, Some(class))).collect();
    kinds.push((Behaviour::ok("done"), None));
    // Only trouble that passes lets a sequence grow long, so it comes more often.
    let passing: Vec<usize> = (0..kinds.len())
        .filter(|at| kinds[*at].1.is_some_and(|class| matches!(policy(class, 1, 0.0), Next::Retry { .. })))
        .collect();
    let client = client(None).unwrap();
    let mut longest = 0;
    for seed in 0..200 {
        let mut random = Random(seed);
        let length = 1 + random.below(16);
        let sequence: Vec<(Behaviour, Option<Class>)> = (0..length)
            .map(|_| match random.below(4) {
                0 => kinds[random.below(kinds.len())].clone(),
                _ => kinds[passing[random.below(passing.len())]].clone(),
            })
            .collect();
        let (behaviours, classes): (Vec<_>, Vec<_>) = sequence.into_iter().unzip();
        let (class, calls, parks) = foresee(&classes);

        let server = Server::start(behaviours).await.unwrap();
        let start = tokio::time::Instant::now();
        let (outcome, seen) = ask(&Still::with(client.clone(), &server), &Stop::default()).await;
        let got = match &outcome {
            Ok(reply) => {
                assert_eq!(reply.text, "done", "seed {seed}");
                (None, u32::try_from(seen.len()).unwrap() + 1, false)
            }
            Err(failure) => {
                assert!(!told(failure).contains(KEY), "seed {seed}: {failure:?}");
                (Some(failure.class), failure.attempts, failure.park.is_some())
            }
        };
        assert_eq!(got, (class, calls, parks), "seed {seed}: {seen:?}");
        assert_eq!(server.requests().len(), usize::try_from(calls).unwrap(), "seed {seed}");
        assert!(start.elapsed() <= MAX_CALLS * Duration::from_secs(20 + 60), "seed {seed}");
        longest = longest.max(calls);
    }
    assert!(longest > 6, "the sequences are too tame: {longest}");
}

#[tokio::test(start_paused = true)]
async fn a_script_answers_in_turn() {
    let script = Script::parse(concat!(
        "{\"format\":1}\n",
        "{\"text\":\"one\",\"usage\":{\"input\":7,\"output\":2},\"model\":\"glm-4.7\"}\n",
        "{\"json\":{\"summary\":\"two\"},\"fault\":{\"status\":429,\"retry_after_s\":5,\"times\":2}}\n",
        "{\"text\":\"late\",\"delay_ms\":60000}\n",
        "{\"text\":\"again\",\"when\":{\"call\":1}}\n",
        "{\"fault\":{\"status\":429,\"body\":\"{\\\"error\\\":{\\\"code\\\":\\\"insufficient_quota\\\"}}\"}}\n",
    ))
    .unwrap();
    let model = Scripted::new("demo.jsonl", "cheap", script);
    assert_eq!((model.name(), model.remote()), ("scripted/demo.jsonl", false));
    let reply = model.call(&request(), FIRST).await.unwrap();
    assert_eq!(
        reply,
        Reply {
            text: "one".into(),
            usage: Usage { input: 7, output: 2, ..Usage::default() },
            usage_reported: true,
            model: "glm-4.7".into(),
            finish: Finish::Stop,
            raw_bytes: 3,
        }
    );
    // A resumed run asks again, and gets the same.
    assert_eq!(model.call(&request(), FIRST).await.unwrap(), reply);
    assert_eq!(model.call(&request(), CallKey::new(1, 1)).await.unwrap().text, "again");

    let stop = Stop::default();
    let start = tokio::time::Instant::now();
    let mut faults = 0;
    let reply =
        call_with_retry(&model, &request(), CallKey::new(2, 0), Pace::default(), &stop, &mut |_, _| faults += 1)
            .await
            .unwrap();
    assert_eq!((reply.text.as_str(), faults, start.elapsed()), (r#"{"summary":"two"}"#, 2, Duration::from_secs(10)));
    assert_eq!((reply.usage, reply.usage_reported), (estimate(&request(), reply.text.len()), false));

    for (iteration, class, calls) in [(3, Class::Timeout, 3), (4, Class::Quota, 1), (5, Class::ScriptEnded, 1)] {
        let key = CallKey::new(iteration, 0);
        let failure =
            call_with_retry(&model, &request(), key, Pace::default(), &stop, &mut |_, _| ()).await.unwrap_err();
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
async fn a_script_that_cannot_be_loaded_says_where_and_why() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("demo.jsonl");
    let shown = file.display().to_string();
    let error = Scripted::load(&file, "cheap").await.unwrap_err();
    assert!(matches!(error, LoadError::Read { .. }));
    assert_eq!(error.to_string(), format!("could not read the script `{shown}`"));

    std::fs::write(&file, "{\"format\":1}\n{}\n").unwrap();
    let error = Scripted::load(&file, "cheap").await.unwrap_err();
    assert_eq!(
        (error.to_string(), error.source().map(ToString::to_string), error.hint()),
        (
            format!("the script `{shown}` cannot be played"),
            Some("line 2: a reply needs `text`, `json` or `fault`".into()),
            format!("{shown}:2: add a `\"text\"`"),
        )
    );

    std::fs::write(&file, "{\"format\":1}\n{\"text\":\"hi\"}\n").unwrap();
    assert_eq!(Scripted::load(&file, "cheap").await.unwrap().name(), "scripted/demo.jsonl");
}
