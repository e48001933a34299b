//! Tests that a rogue agent cannot spend more than its run may: a thousand runs, each with its own tricks and its own
//! provider.
//!
//! The provider keeps its own bill. Whatever happened, the ledger must have charged at least that bill and no more
//! than the cap, and must have reported every call that it charged.

use std::sync::Arc;
use std::time::Duration;

use ralph_core::money::MicroUsd;
use ralph_core::price::TokenUsage;
use ralph_proxy::ledger::{Ledger, LedgerAmount};
use ralph_proxy::meter::RouteApi;
use ralph_testkit::model_server::{self, BilledTokens, FakeModelScript, FakeModelServer, ScriptedTurn, ServerBill};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::fixture::{FakeResolver, GatewayFixture, MODEL, PRICE, TEST_TIMEOUT, caps, grant, key_of, route};
use crate::http_client::{TEST_APIS, TestApi, post};
use crate::seeded_random::ProxyTestRng;

const TRIALS: u64 = 1000;
const AT_ONCE: u64 = 8;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_trick_spends_more_than_the_cap() {
    let mut running = JoinSet::new();
    let mut refused = 0;
    for seed in 0..TRIALS {
        if seed >= AT_ONCE {
            refused += running.join_next().await.unwrap().unwrap();
        }
        running.spawn(trial(seed));
    }
    while let Some(ended) = running.join_next().await {
        refused += ended.unwrap();
    }
    assert!(refused > TRIALS, "the caps were rarely reached: {refused}");
}

/// What the provider's answers may count; each API reports only some classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BilledCacheUse {
    Plain,
    /// Prompts are written to a cache.
    Writes,
    /// And they stay there for an hour.
    Hour,
}

/// Plays one run and returns how many calls were refused because the budget was spent.
async fn trial(seed: u64) -> u64 {
    let chance = &mut ProxyTestRng::new(seed);
    let kind =
        *chance.pick(&[BilledCacheUse::Plain, BilledCacheUse::Plain, BilledCacheUse::Writes, BilledCacheUse::Hour]);
    // In a stream, a failure in the middle is an event; without a stream it is a refusal, which providers do not
    // charge for.
    let streams_only = chance.one_in(3);
    let turns: Vec<ScriptedTurn> = (0..chance.between(1, 6)).map(|_| turn(chance, kind, streams_only)).collect();
    let server = FakeModelServer::builder().script(FakeModelScript::for_all_calls(turns)).start().await.unwrap();

    let cap = caps(chance.between(1, 12) * 4_000, if chance.one_in(2) { chance.between(500, 9_000) } else { 1 << 40 });
    let (cost, tokens) = (cap.cost.unwrap(), cap.tokens.unwrap());
    let spent = match chance.between(0, 3) {
        0 => LedgerAmount { cost: MicroUsd(cost.0 / 100 * 99), tokens: 0 },
        1 => LedgerAmount { cost: MicroUsd(cost.0 / 2), tokens: tokens.min(1 << 20) / 2 },
        _ => LedgerAmount::default(),
    };
    let ledger = Ledger::new(cap, spent.cost, spent.tokens);
    let key = |wire, name| key_of(wire, name);
    let (a, o, g) = (key(RouteApi::Anthropic, "A"), key(RouteApi::OpenAi, "O"), key(RouteApi::Gemini, "G"));
    let url = server.url();
    let routes = vec![
        route("anthropic", RouteApi::Anthropic, &url, Some(&a)),
        route("openai", RouteApi::OpenAi, &url, Some(&o)),
        route("gemini", RouteApi::Gemini, &url, Some(&g)),
    ];
    let fixture = Arc::new(GatewayFixture::open(grant(routes, ledger.clone()), FakeResolver::new(&[])));

    let many = if chance.one_in(25) { 50 } else { chance.between(2, 7) };
    let parallel = many == 50 || chance.one_in(2);
    let mut calls = JoinSet::new();
    for _ in 0..many {
        let wire = match kind {
            BilledCacheUse::Plain => *chance.pick(&TEST_APIS),
            BilledCacheUse::Writes => *chance.pick(&[TestApi::Messages, TestApi::Chat, TestApi::Responses]),
            BilledCacheUse::Hour => TestApi::Messages,
        };
        let phantom = match wire {
            TestApi::Messages => a.phantom(),
            TestApi::Chat | TestApi::Responses => o.phantom(),
            TestApi::Gemini => g.phantom(),
        };
        let words = rogue(chance, wire, kind, streams_only, phantom);
        let patience = hang_up_point(chance);
        calls.spawn(client(fixture.proxy_address, words, patience));
        if !parallel {
            calls.join_next().await.unwrap().unwrap();
        }
        if chance.one_in(60) {
            fixture.proxy.restart();
        }
    }
    while let Some(ended) = calls.join_next().await {
        ended.unwrap();
    }
    check(seed, fixture, &server, spent, LedgerAmount { cost, tokens }).await
}

/// Checks that, whatever happened, at least the provider's bill was charged, at most the cap, and all of it was
/// reported.
async fn check(
    seed: u64,
    fixture: Arc<GatewayFixture>,
    server: &FakeModelServer,
    before: LedgerAmount,
    cap: LedgerAmount,
) -> u64 {
    let GatewayFixture { proxy: guard, events, ledger, .. } = Arc::into_inner(fixture).unwrap();
    guard.close().await;
    let nothing = || ledger.reserved() == LedgerAmount::default();
    crate::fixture::wait_until("every reservation is closed", nothing).await;
    let settled = ledger.settled();
    assert!(settled.cost <= cap.cost && settled.tokens <= cap.tokens, "trial {seed}: {settled:?} of {cap:?}");
    let (bill, used) = priced(server.bill());
    let charged = (settled.cost.saturating_sub(before.cost), settled.tokens - before.tokens);
    assert!(bill <= charged.0 && used <= charged.1, "trial {seed}: billed {bill} {used}, charged {charged:?}");
    // The final event of a call comes after its reservation is closed.
    crate::fixture::wait_until("every call is reported", || events.calls().len() == events.started_calls()).await;
    let reported: MicroUsd = events.calls().iter().map(|call| call.cost).sum();
    assert_eq!(reported, charged.0, "trial {seed}: what was reported is what was charged");
    assert_eq!(events.alarms(), [], "trial {seed}");
    events
        .all()
        .iter()
        .filter(|event| matches!(event, ralph_proxy::egress_events::EgressEvent::BudgetSpent { .. }))
        .count() as u64
}

fn priced(bill: ServerBill) -> (MicroUsd, u64) {
    let ServerBill { input, cached, cache_write, cache_write_long, output, .. } = bill;
    let usage = TokenUsage { input, cached_input: cached, cache_write, cache_write_long, output, reasoning: 0 };
    (PRICE.cost(&usage), usage.total())
}

/// Returns how a provider answers. It reports truthfully what it charges, or nothing; it never charges for more than
/// it was asked for.
fn turn(chance: &mut ProxyTestRng, kind: BilledCacheUse, streams_only: bool) -> ScriptedTurn {
    let words = "word ".repeat(usize::try_from(chance.between(1, 40)).unwrap());
    let usage = usage(chance, kind);
    let text = match chance.between(0, 3) {
        0 => ScriptedTurn::fake_stream_end(model_server::UsageReport::Counted),
        1 => ScriptedTurn::fake_stream_end(usage),
        2 => ScriptedTurn::Text { text: words, usage },
        _ => ScriptedTurn::text(words),
    };
    let after_events = usize::try_from(chance.between(0, 8)).unwrap();
    // A failure before the first output is not paid for.
    let failing = after_events.max(4);
    let short = Duration::from_millis(chance.between(0, 3));
    match chance.between(0, 11) {
        0 => text.cut(after_events),
        1 => text.slow(short, Duration::from_millis(1)),
        2 => text.cut(after_events).slow(short, short),
        3 if streams_only => {
            let (kind, message) = ("overloaded_error".to_owned(), "try again".to_owned());
            ScriptedTurn::Fail { after_events: failing, kind, message, then: Box::new(text) }
        }
        4 => ScriptedTurn::error(429, "rate_limit_error", "slow down"),
        5 => ScriptedTurn::error(529, "overloaded_error", "overloaded"),
        6 => ScriptedTurn::error(500, "api_error", "oops").slow(short, short),
        7 => ScriptedTurn::Malformed,
        8 => ScriptedTurn::Html,
        _ => text,
    }
}

/// One token of output always fits; the prompt is longer than the usage reported here.
fn usage(chance: &mut ProxyTestRng, kind: BilledCacheUse) -> model_server::UsageReport {
    let mut tokens =
        BilledTokens { input: chance.between(1, 20), cached: chance.between(0, 20), ..BilledTokens::default() };
    tokens.output = 1;
    match kind {
        BilledCacheUse::Plain => (),
        BilledCacheUse::Writes => tokens.cache_write = chance.between(0, 30),
        BilledCacheUse::Hour => tokens.cache_write_long = chance.between(0, 30),
    }
    match chance.between(0, 2) {
        0 => model_server::UsageReport::Unreported(tokens),
        1 => model_server::UsageReport::Reported(tokens),
        _ => model_server::UsageReport::Counted,
    }
}

/// Returns a request that asks for too much in one way or another.
fn rogue(chance: &mut ProxyTestRng, ask: TestApi, kind: BilledCacheUse, streams_only: bool, phantom: &str) -> Vec<u8> {
    let stream = streams_only || chance.one_in(2);
    let model = if chance.one_in(12) { "m-2" } else { MODEL };
    let most = match chance.between(0, 5) {
        0 => None,
        1 => Some(u64::MAX),
        2 => Some(4096),
        3 => Some(1),
        _ => Some(chance.between(1, 400)),
    };
    let prompt = "p".repeat(usize::try_from(chance.between(300, 900)).unwrap());
    let mut body = ask.body(model, &prompt, most, stream);
    if chance.one_in(6) {
        match ask {
            TestApi::Chat => body["n"] = json!(8),
            TestApi::Gemini => {
                let config = json!({"candidateCount": 8, "maxOutputTokens": 8192});
                body["generationConfig"] = config;
            }
            TestApi::Messages | TestApi::Responses => (),
        }
    }
    if kind == BilledCacheUse::Hour {
        body["messages"] = hour_cached_messages(&prompt);
    }
    if stream && ask == TestApi::Chat && chance.one_in(3) {
        body["stream_options"] = json!({"include_usage": chance.one_in(2)});
    }
    let path = format!("/r/{}{}", ask.route(), ask.path(model, stream));
    post(&path, &[&ask.key(phantom), "Connection: close"], body.to_string().as_bytes())
}

fn hour_cached_messages(prompt: &str) -> Value {
    let control = json!({"type": "ephemeral", "ttl": "1h"});
    json!([{"role": "user", "content": [{"type": "text", "text": prompt, "cache_control": control}]}])
}

/// When a client hangs up.
#[derive(Debug, Clone, Copy)]
enum HangUpPoint {
    Never,
    /// Before the whole request is sent.
    WhileSending,
    /// Without waiting for an answer.
    BeforeAnswer,
    /// After this many bytes of the answer.
    AfterBytes(usize),
}

fn hang_up_point(chance: &mut ProxyTestRng) -> HangUpPoint {
    match chance.between(0, 9) {
        0 => HangUpPoint::WhileSending,
        1 => HangUpPoint::BeforeAnswer,
        2 | 3 => HangUpPoint::AfterBytes(usize::try_from(chance.between(1, 900)).unwrap()),
        _ => HangUpPoint::Never,
    }
}

async fn client(proxy_address: std::net::SocketAddr, words: Vec<u8>, patience: HangUpPoint) {
    let talk = async {
        let mut stream = TcpStream::connect(proxy_address).await?;
        let end = if matches!(patience, HangUpPoint::WhileSending) { words.len() - 5 } else { words.len() };
        stream.write_all(&words[..end]).await?;
        let most = match patience {
            HangUpPoint::WhileSending | HangUpPoint::BeforeAnswer => 0,
            HangUpPoint::AfterBytes(most) => most,
            HangUpPoint::Never => usize::MAX,
        };
        let mut seen = 0;
        let mut some = vec![0; 4096];
        while seen < most {
            match stream.read(&mut some).await? {
                0 => break,
                n => seen += n,
            }
        }
        std::io::Result::Ok(())
    };
    // The listeners may be closed in between; that is not a failure of the client.
    timeout(TEST_TIMEOUT, talk).await.expect("a call ends").ok();
}
