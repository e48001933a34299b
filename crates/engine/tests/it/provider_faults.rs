//! Tests random sequences of faults on every protocol in a real run: nothing hangs, no call is lost or charged twice,
//! and no iteration is used up by a provider's faults.
//!
//! The pauses between calls are shortened by configuration. Only a server that goes silent costs real time, so it is
//! rare.

use std::time::{Duration, Instant};

use ralph_core::event::{Event, IterationOutcome, ModelCallOutcome, RunStopReason};
use ralph_core::money::MicroUsd;
use ralph_core::price::{CacheLifetime, Price};
use ralph_core::run::RunStatus;
use ralph_testkit::model_server::{FakeModelServer, ModelBehaviour};
use serde_json::json;

use super::run_fixture::{KEY, RunFixture, answer, final_answer, profile};

/// Sequences of faults, each ended by an answer; two of them make an iteration.
const SEQUENCES: usize = 500;

const MODELS: [&str; 4] = ["openai/lab", "openai/lab-codex", "anthropic/lab", "gemini/lab"];

/// What a call with this fault may have cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ExpectedCharge {
    /// Nothing is charged.
    Nothing,
    /// Unknown, so the worst case is charged.
    Worst,
    /// It was answered in full.
    Answered,
}

/// A small generator with a seed, so that a failing sequence can be repeated.
struct FaultRandom(u64);

impl FaultRandom {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let bound = u64::try_from(bound).expect("bounds are small");
        usize::try_from((mixed ^ (mixed >> 31)) % bound).expect("below a small bound")
    }
}

fn fault(random: &mut FaultRandom) -> (ModelBehaviour, ExpectedCharge) {
    let raw = |body: &str| ModelBehaviour::Raw { body: body.into(), content_type: "application/json".into() };
    match random.below(100) {
        0..12 => (ModelBehaviour::rate_limited(["1", "20", "0"][random.below(3)]), ExpectedCharge::Nothing),
        12..18 => (ModelBehaviour::rate_limited("120"), ExpectedCharge::Nothing),
        18..24 => (ModelBehaviour::error(429, "rate_limit_exceeded", "slow down"), ExpectedCharge::Nothing),
        24..38 => (ModelBehaviour::overloaded(), ExpectedCharge::Nothing),
        38..47 => (ModelBehaviour::status(503), ExpectedCharge::Nothing),
        47..48 => (ModelBehaviour::error(401, "invalid_api_key", &format!("no {KEY}")), ExpectedCharge::Nothing),
        48..50 => (ModelBehaviour::redirect("http://127.0.0.1:9/chat/completions"), ExpectedCharge::Nothing),
        50..60 => (ModelBehaviour::status(500), ExpectedCharge::Nothing),
        60..68 => (ModelBehaviour::html(502), ExpectedCharge::Nothing),
        68..72 => (ModelBehaviour::status(504), ExpectedCharge::Worst),
        72..80 => (ModelBehaviour::Cut, ExpectedCharge::Worst),
        80..86 => (ModelBehaviour::Reset, ExpectedCharge::Worst),
        86..91 => (ModelBehaviour::invalid_json(), ExpectedCharge::Worst),
        91..95 => (raw("<html><title>hello</title>"), ExpectedCharge::Worst),
        95..98 => (raw(r#"{"error": {"code": 429, "message": "inside a fine answer"}}"#), ExpectedCharge::Nothing),
        98 => (ModelBehaviour::Hang, ExpectedCharge::Worst),
        _ => (ModelBehaviour::Stall, ExpectedCharge::Worst),
    }
}

/// An answer with usage that may be implausible.
fn answer_with_odd_usage(content: String, random: &mut FaultRandom) -> ModelBehaviour {
    let pair = |prompt: i64, completion: i64| json!({"prompt_tokens": prompt, "completion_tokens": completion});
    match random.below(10) {
        0 => ModelBehaviour::Ok { content, usage: json!(null) },
        1 => ModelBehaviour::Ok { content, usage: pair(-5, 9) },
        2 => ModelBehaviour::Ok { content, usage: pair(900_000_000_000, 9) },
        3 => ModelBehaviour::Ok { content, usage: pair(12, 900_000_000) },
        4 => ModelBehaviour::PacedChunks { content, pieces: 7, pause: Duration::from_millis(1) },
        _ => ModelBehaviour::ok(content),
    }
}

/// The sequences of one lane: in each iteration one that ends with nonsense and one that ends with a valid answer.
fn fault_sequences(seed: u64, sequences: usize) -> Vec<(ModelBehaviour, ExpectedCharge)> {
    let mut random = FaultRandom(seed);
    let mut all = Vec::new();
    for sequence in 0..sequences {
        let faults = [0, 0, 1, 1, 2, 3, 5][random.below(7)];
        all.extend((0..faults).map(|_| fault(&mut random)));
        let content = if sequence % 2 == 0 { "no answer".to_owned() } else { answer("Step.", &[]) };
        all.push((answer_with_odd_usage(content, &mut random), ExpectedCharge::Answered));
    }
    all.push((ModelBehaviour::ok(final_answer()), ExpectedCharge::Answered));
    all
}

async fn run_sequences(model: &str, seed: u64, sequences: usize) {
    let context = format!("model {model}, seed {seed}");
    let (behaviours, charges): (Vec<_>, Vec<_>) = fault_sequences(seed, sequences).into_iter().unzip();
    let server = FakeModelServer::with_behaviours(behaviours).await.unwrap();
    let mut fixture = RunFixture::new().await;
    let mut own = profile("own", model, Some(server.base_url()));
    // How much of a lost answer was reasoning is unknown, and reasoning is more expensive here.
    own.price = own.price.map(|price| Price { reasoning: Some(20_000_000), ..price });
    let mut rests = 0;
    let state = loop {
        let state = fixture.drive(&own, None).await;
        match &state.status {
            RunStatus::Paused { reason: RunStopReason::Provider { .. } | RunStopReason::Auth { .. }, .. } => rests += 1,
            _ => break state,
        }
        assert!(rests <= charges.len(), "{context}: it never ends");
    };
    let whole = || format!("{context}\n{}", fixture.case.event_text());
    assert!(matches!(state.status, RunStatus::Failed { reason: RunStopReason::GaveUp { .. }, .. }), "{}", whole());
    assert!(!fixture.case.event_text().contains(KEY), "{context}: the key was recorded");

    // Every call is charged as often as it can have been paid for.
    let due = |charge: ExpectedCharge| charges.iter().filter(|other| **other == charge).count();
    assert_eq!(server.requests().len(), charges.len(), "{}", whole());
    assert_eq!(server.answered(), due(ExpectedCharge::Answered), "{}", whole());
    let (mut answered, mut lost, mut cost, mut tokens) = (0, 0, MicroUsd::ZERO, 0);
    for event in fixture.events() {
        let Event::ModelCalled { answer, usage, cost: one, .. } = event else { continue };
        let price = own.price.as_ref().unwrap();
        cost += one;
        tokens += usage.total();
        if answer == ModelCallOutcome::Lost {
            lost += 1;
            assert_eq!(usage.output, u64::from(own.max_output_tokens), "{context}: at its worst case");
            assert_eq!(
                one,
                price.worst_case(usage.input, usage.output, CacheLifetime::Short),
                "{context}: at its worst case"
            );
        } else {
            answered += 1;
            // If the provider's count is implausible, the whole reservation is charged.
            let worst = price.worst_case(usage.input, usage.output, CacheLifetime::Short);
            assert!(one == price.cost(&usage) || one == worst, "{context}: {one:?} for {usage:?}");
            assert!(usage.prompt() < 100_000 && (1..1000).contains(&usage.output), "{context}: {usage:?}");
        }
    }
    assert_eq!((answered, lost), (due(ExpectedCharge::Answered), due(ExpectedCharge::Worst)), "{}", whole());
    assert_eq!((state.spent.cost, state.spent.tokens), (cost, tokens), "{context}");

    // One iteration for every two answers, and one for the last.
    let iterations = u32::try_from(sequences / 2 + 1).unwrap();
    assert_eq!(state.spent.iterations, iterations, "{}", whole());
    let used_up =
        |event: &Event| matches!(event, Event::IterationFinished { outcome: IterationOutcome::BadOutput, .. });
    assert!(!fixture.events().iter().any(used_up), "{}", whole());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_sequence_of_faults_loses_or_doubles_a_call() {
    let begun = Instant::now();
    let lanes = 8;
    let each = SEQUENCES.div_ceil(2 * lanes) * 2;
    let tasks: Vec<_> = (0..lanes)
        .map(|at| tokio::spawn(run_sequences(MODELS[at % MODELS.len()], 77 + u64::try_from(at).unwrap(), each)))
        .collect();
    for lane in tasks {
        lane.await.unwrap();
    }
    eprintln!("{} sequences in {:.1} s", lanes * each, begun.elapsed().as_secs_f64());
}
