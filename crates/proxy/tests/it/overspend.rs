//! A rogue agent tries to spend more than its run may: a thousand runs, each with its own tricks and its own provider.
//!
//! The provider keeps its own bill. Whatever happened, the account book must have charged at least that bill and no
//! more than the cap, and must have told every call that it charged.

use std::sync::Arc;
use std::time::Duration;

use ralph_core::money::Micros;
use ralph_core::price::Usage;
use ralph_proxy::ledger::{Ledger, Spend};
use ralph_proxy::meter::Wire;
use ralph_testkit::llm::{self, Bill, Script, Server, Tokens, Turn};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::chance::Chance;
use crate::stage::{MODEL, PATIENCE, PRICE, Stage, World, caps, key_of, route, terms};
use crate::wire::{ASKS, Ask, post};

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
    assert!(refused > TRIALS, "the caps were hardly ever reached: {refused}");
}

/// What the provider's own answers may count; each wire tells some classes only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    /// Prompts are written to a cache.
    Writes,
    /// And stay there for an hour.
    Hour,
}

/// Plays one run and returns how many calls were refused for want of money or tokens.
async fn trial(seed: u64) -> u64 {
    let chance = &mut Chance::new(seed);
    let kind = *chance.pick(&[Kind::Plain, Kind::Plain, Kind::Writes, Kind::Hour]);
    // A failure in the middle is an event; without a stream it is a refusal, which nobody charges for.
    let streams_only = chance.one_in(3);
    let turns: Vec<Turn> = (0..chance.between(1, 6)).map(|_| turn(chance, kind, streams_only)).collect();
    let server = Server::builder().script(Script::every(turns)).start().await.unwrap();

    let cap = caps(chance.between(1, 12) * 4_000, if chance.one_in(2) { chance.between(500, 9_000) } else { 1 << 40 });
    let (cost, tokens) = (cap.cost.unwrap(), cap.tokens.unwrap());
    let spent = match chance.between(0, 3) {
        0 => Spend { cost: Micros(cost.0 / 100 * 99), tokens: 0 },
        1 => Spend { cost: Micros(cost.0 / 2), tokens: tokens.min(1 << 20) / 2 },
        _ => Spend::default(),
    };
    let ledger = Ledger::new(cap, spent.cost, spent.tokens);
    let key = |wire, name| key_of(wire, name);
    let (a, o, g) = (key(Wire::Anthropic, "A"), key(Wire::OpenAi, "O"), key(Wire::Gemini, "G"));
    let url = server.url();
    let routes = vec![
        route("anthropic", Wire::Anthropic, &url, Some(&a)),
        route("openai", Wire::OpenAi, &url, Some(&o)),
        route("gemini", Wire::Gemini, &url, Some(&g)),
    ];
    let stage = Arc::new(Stage::open(terms(routes, ledger.clone()), World::new(&[])));

    let many = if chance.one_in(25) { 50 } else { chance.between(2, 7) };
    let parallel = many == 50 || chance.one_in(2);
    let mut calls = JoinSet::new();
    for _ in 0..many {
        let wire = match kind {
            Kind::Plain => *chance.pick(&ASKS),
            Kind::Writes => *chance.pick(&[Ask::Messages, Ask::Chat, Ask::Responses]),
            Kind::Hour => Ask::Messages,
        };
        let phantom = match wire {
            Ask::Messages => a.phantom(),
            Ask::Chat | Ask::Responses => o.phantom(),
            Ask::Gemini => g.phantom(),
        };
        let words = rogue(chance, wire, kind, streams_only, phantom);
        let patience = patience(chance);
        calls.spawn(client(stage.door, words, patience));
        if !parallel {
            calls.join_next().await.unwrap().unwrap();
        }
        if chance.one_in(60) {
            stage.guard.fail();
        }
    }
    while let Some(ended) = calls.join_next().await {
        ended.unwrap();
    }
    check(seed, stage, &server, spent, Spend { cost, tokens }).await
}

/// Whatever happened: charged at least what the provider did, at most the cap, and told every bit of it.
async fn check(seed: u64, stage: Arc<Stage>, server: &Server, before: Spend, cap: Spend) -> u64 {
    let Stage { guard, notes, ledger, .. } = Arc::into_inner(stage).unwrap();
    guard.close().await;
    let nothing = || ledger.reserved() == Spend::default();
    crate::stage::wait_until("every reservation is closed", nothing).await;
    let settled = ledger.settled();
    assert!(settled.cost <= cap.cost && settled.tokens <= cap.tokens, "trial {seed}: {settled:?} of {cap:?}");
    let (bill, used) = priced(server.bill());
    let charged = (settled.cost.saturating_sub(before.cost), settled.tokens - before.tokens);
    assert!(bill <= charged.0 && used <= charged.1, "trial {seed}: billed {bill} {used}, charged {charged:?}");
    // The last word about a call comes after its reservation is closed.
    crate::stage::wait_until("every call is told", || notes.calls().len() == notes.begun()).await;
    let told: Micros = notes.calls().iter().map(|call| call.cost).sum();
    assert_eq!(told, charged.0, "trial {seed}: what was told is what was charged");
    assert_eq!(notes.alarms(), [], "trial {seed}");
    notes.all().iter().filter(|told| matches!(told, ralph_proxy::notice::Told::Spent { .. })).count() as u64
}

fn priced(bill: Bill) -> (Micros, u64) {
    let Bill { input, cached, cache_write, cache_write_long, output, .. } = bill;
    let usage = Usage { input, cached_input: cached, cache_write, cache_write_long, output, reasoning: 0 };
    (PRICE.cost(&usage), usage.total())
}

/// How a provider answers. It is honest about what it charges, or says nothing; it never charges for more than it was
/// asked for.
fn turn(chance: &mut Chance, kind: Kind, streams_only: bool) -> Turn {
    let words = "word ".repeat(usize::try_from(chance.between(1, 40)).unwrap());
    let usage = usage(chance, kind);
    let text = match chance.between(0, 3) {
        0 => Turn::lie(llm::Usage::Counted),
        1 => Turn::lie(usage),
        2 => Turn::Text { text: words, usage },
        _ => Turn::text(words),
    };
    let after_events = usize::try_from(chance.between(0, 8)).unwrap();
    // What fails before its first word is not paid for.
    let failing = after_events.max(4);
    let short = Duration::from_millis(chance.between(0, 3));
    match chance.between(0, 11) {
        0 => text.cut(after_events),
        1 => text.slow(short, Duration::from_millis(1)),
        2 => text.cut(after_events).slow(short, short),
        3 if streams_only => {
            let (kind, message) = ("overloaded_error".to_owned(), "try again".to_owned());
            Turn::Fail { after_events: failing, kind, message, then: Box::new(text) }
        }
        4 => Turn::error(429, "rate_limit_error", "slow down"),
        5 => Turn::error(529, "overloaded_error", "overloaded"),
        6 => Turn::error(500, "api_error", "oops").slow(short, short),
        7 => Turn::Malformed,
        8 => Turn::Html,
        _ => text,
    }
}

/// One token of output always fits; the prompt is longer than what is said here.
fn usage(chance: &mut Chance, kind: Kind) -> llm::Usage {
    let mut tokens = Tokens { input: chance.between(1, 20), cached: chance.between(0, 20), ..Tokens::default() };
    tokens.output = 1;
    match kind {
        Kind::Plain => (),
        Kind::Writes => tokens.cache_write = chance.between(0, 30),
        Kind::Hour => tokens.cache_write_long = chance.between(0, 30),
    }
    match chance.between(0, 2) {
        0 => llm::Usage::Untold(tokens),
        1 => llm::Usage::Said(tokens),
        _ => llm::Usage::Counted,
    }
}

/// A request that wants too much in one way or another.
fn rogue(chance: &mut Chance, ask: Ask, kind: Kind, streams_only: bool, phantom: &str) -> Vec<u8> {
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
            Ask::Chat => body["n"] = json!(8),
            Ask::Gemini => {
                let config = json!({"candidateCount": 8, "maxOutputTokens": 8192});
                body["generationConfig"] = config;
            }
            Ask::Messages | Ask::Responses => (),
        }
    }
    if kind == Kind::Hour {
        body["messages"] = hour(&prompt);
    }
    if stream && ask == Ask::Chat && chance.one_in(3) {
        body["stream_options"] = json!({"include_usage": chance.one_in(2)});
    }
    let path = format!("/r/{}{}", ask.route(), ask.path(model, stream));
    post(&path, &[&ask.key(phantom), "Connection: close"], body.to_string().as_bytes())
}

fn hour(prompt: &str) -> Value {
    let control = json!({"type": "ephemeral", "ttl": "1h"});
    json!([{"role": "user", "content": [{"type": "text", "text": prompt, "cache_control": control}]}])
}

/// When a client hangs up.
#[derive(Debug, Clone, Copy)]
enum Patience {
    ToTheEnd,
    /// Before all of the request is out.
    Unfinished,
    /// Without waiting for an answer.
    NotABit,
    /// After so many bytes of it.
    Bytes(usize),
}

fn patience(chance: &mut Chance) -> Patience {
    match chance.between(0, 9) {
        0 => Patience::Unfinished,
        1 => Patience::NotABit,
        2 | 3 => Patience::Bytes(usize::try_from(chance.between(1, 900)).unwrap()),
        _ => Patience::ToTheEnd,
    }
}

async fn client(door: std::net::SocketAddr, words: Vec<u8>, patience: Patience) {
    let talk = async {
        let mut stream = TcpStream::connect(door).await?;
        let end = if matches!(patience, Patience::Unfinished) { words.len() - 5 } else { words.len() };
        stream.write_all(&words[..end]).await?;
        let most = match patience {
            Patience::Unfinished | Patience::NotABit => 0,
            Patience::Bytes(most) => most,
            Patience::ToTheEnd => usize::MAX,
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
    // The doors may be shut in between; that is no failure of the client's.
    timeout(PATIENCE, talk).await.expect("a call ends").ok();
}
