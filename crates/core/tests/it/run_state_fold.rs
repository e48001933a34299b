//! Tests that state and spend are folds of events.

use std::collections::{BTreeMap, BTreeSet};

use ralph_core::control_request::Control;
use ralph_core::decide_next_step::RunStep;
use ralph_core::event::{
    ActionOutcome, CheckStage, Event, EventLine, ModelCallOutcome, RESUMED_BY_WAIT, ReviewFinding, RunStart,
    RunStopReason, RunVerdict,
};
use ralph_core::exit_code::RalphExitCode;
use ralph_core::gutter::LadderPosition;
use ralph_core::money::MicroUsd;
use ralph_core::price::TokenUsage;
use ralph_core::redact::MaskedText;
use ralph_core::run::{BadHistory, ModelUsage, RunState, RunStatus};

use crate::run_builder::{RunBuilder, commit, sandbox_ready, started};

#[test]
fn the_same_lines_give_the_same_state() {
    let run = RunBuilder::ready().starts(1).answers(1).acts(0, "run", ActionOutcome::Ok).ends(&["M1.1"]).scores(0.3);
    let text: String = run.lines.iter().map(|line| line.to_json() + "\n").collect();
    let lines: Vec<EventLine> = text.lines().map(|line| EventLine::parse(line).unwrap()).collect();
    assert_eq!(RunState::from_events(lines).unwrap(), run.state);
}

#[test]
fn invalid_histories_are_refused() {
    assert_eq!(RunState::from_events([]), Err(BadHistory::Empty));
    let run = RunBuilder::ready();
    let mut gap = run.lines.clone();
    gap[1].seq = 3;
    assert_eq!(RunState::from_events(gap), Err(BadHistory::Gap { last: 1, found: 3 }));
    let late = run.lines[1].clone();
    assert_eq!(RunState::from_events([late]), Err(BadHistory::NoStart { found: "sandbox-ready" }));
    let mut twice = run.lines.clone();
    twice[1] = EventLine { seq: 2, ..twice[0].clone() };
    assert_eq!(RunState::from_events(twice), Err(BadHistory::SecondStart { seq: 2 }));
}

#[test]
fn time_counts_only_while_the_run_is_active() {
    let paused = RunBuilder::ready()
        .after(1000, Event::Paused { reason: RunStopReason::Asked, next: String::new() })
        .after(50_000, Event::Resumed { by: "x".to_owned() })
        .after(500, Event::Log { level: ralph_core::event::EventLogLevel::Info, text: MaskedText::default() });
    assert_eq!(paused.state.spent.wall_ms, 10 + 1000 + 500);
    // A process that died: no work happens between its last event and the resume.
    let crashed = RunBuilder::ready().after(70_000, Event::Resumed { by: "x".to_owned() });
    assert_eq!(crashed.state.spent.wall_ms, 10);
}

#[test]
fn elapsed_time_counts_instead_of_the_wall_clock() {
    let log = || Event::Log { level: ralph_core::event::EventLogLevel::Info, text: MaskedText::default() };
    for (wall_clock_ms, passed_ms, want) in [(86_400_000, Some(500), 500), (0, Some(2000), 2000), (700, None, 700)] {
        let mut run = RunBuilder::ready().after(wall_clock_ms, log());
        run.lines[2].passed_ms = passed_ms;
        assert_eq!(RunState::from_events(run.lines).unwrap().spent.wall_ms, 10 + want);
    }
}

#[test]
fn waits_for_a_provider_are_counted_until_it_answers() {
    let outage = || RunStopReason::Outage { until: jiff::Timestamp::UNIX_EPOCH, why: "x".to_owned() };
    let wait = |run: RunBuilder, by: &str| {
        let paused = Event::Paused { reason: outage(), next: String::new() };
        run.then(paused).then(Event::Resumed { by: by.to_owned() })
    };
    let cut = |run: RunBuilder| run.acts(0, "session", ActionOutcome::Cut);
    let twice = || wait(wait(RunBuilder::ready().starts(1), RESUMED_BY_WAIT), RESUMED_BY_WAIT);
    assert_eq!((twice().state.waited, twice().called(0, ModelCallOutcome::Lost, 1).state.waited), (2, 2));
    let answered = twice().called(0, ModelCallOutcome::Invalid { error: "no".into() }, 1);
    assert_eq!(answered.state.waited, 0);
    assert_eq!((cut(twice()).state.waited, twice().acts(0, "session", ActionOutcome::Ok).state.waited), (2, 0));
    // A resume by the user resets the count.
    assert_eq!(wait(twice(), "ralph resume").state.waited, 0);
}

#[test]
fn every_call_is_charged() {
    let run = RunBuilder::ready()
        .starts(1)
        .called(0, ModelCallOutcome::Lost, 70)
        .called(1, ModelCallOutcome::Invalid { error: "no".into() }, 20)
        .called(2, ModelCallOutcome::Actions { count: 0, response: String::new() }, 10);
    assert_eq!((run.state.spent.cost, run.state.spent.tokens), (MicroUsd(100), 45));
    assert_eq!(run.state.open.unwrap().calls, 3);
}

#[test]
fn calls_are_counted_by_model() {
    let other = |run: RunBuilder, cost: u64, times: u64| {
        let answer = ModelCallOutcome::Through { status: Some(200), times };
        let (profile, model) = ("strong".to_owned(), "big".to_owned());
        let (usage, cost) = (TokenUsage::default(), MicroUsd(cost));
        run.then(Event::ModelCalled { n: 1, call: 9, profile, model, answer, usage, cost, duration_ms: 1 })
    };
    let run = other(other(RunBuilder::ready().starts(1).called(0, ModelCallOutcome::Lost, 70), 20, 1), 0, 500);
    let share = |calls, cost| ModelUsage { calls, cost: MicroUsd(cost) };
    assert_eq!(run.state.through, 501);
    assert_eq!(run.state.models, BTreeMap::from([("big".to_owned(), share(501, 20)), ("m".to_owned(), share(1, 70))]));
}

#[test]
fn boxes_with_a_proof_of_their_own() {
    let mut started = started();
    let own = |started: &RunStart| -> Vec<bool> {
        started.boxes.iter().map(|pinned| ralph_core::proof_files::has_own_proof(started, pinned)).collect()
    };
    assert_eq!(own(&started), [true, true]);
    let all = vec!["test".to_owned(), "p2".to_owned()];
    started.boxes[1].proofs.clone_from(&all);
    assert_eq!(own(&started), [true, true]);
    started.boxes[0].proofs = all;
    assert_eq!(own(&started), [false, false]);
}

#[test]
fn a_failed_final_proof_unticks_its_box() {
    let run =
        RunBuilder::ready().starts(1).answers(0).ends(&["M1.1", "M2.1"]).checks(CheckStage::Proof, "p2", &["M2.1"], 1);
    assert_eq!(run.state.verified, BTreeSet::from(["M1.1".to_owned()]));
    assert!(!run.state.all_verified());
    let gate = RunBuilder::ready().starts(1).answers(0).ends(&["M1.1"]).checks(CheckStage::Proof, "test", &["test"], 1);
    assert_eq!(gate.state.gate, Some(false));
}

#[test]
fn a_rebuilt_sandbox_proves_its_boxes_again() {
    let run = RunBuilder::ready().starts(1).answers(0).ends(&["M1.1"]).imports("c1").starts(2).answers(3);
    let again = run.then(sandbox_ready("c1", &["M1.1"]));
    assert_eq!(again.state.open, None);
    assert!(again.state.verified.is_empty());
    assert_eq!(again.state.reclaim, BTreeSet::from(["M1.1".to_owned()]));
    assert_eq!(again.state.imported, Some(commit("c1")));
    // The interrupted iteration starts again under its own number and is not counted twice.
    let again = again.starts(2);
    assert_eq!(again.state.spent.iterations, 2);
}

#[test]
fn a_stopped_import_keeps_nothing() {
    let finding =
        ReviewFinding { rule: "secret".to_owned(), path: "a".to_owned(), detail: "a key".to_owned(), stop: true };
    let run = RunBuilder::ready().starts(1).answers(0).then(Event::CommitImported {
        n: 1,
        sha: Some(commit("bad")),
        commits: 1,
        findings: vec![finding],
    });
    assert_eq!((run.state.imported, run.state.import_stopped), (None, Some("a key".to_owned())));
}

#[test]
fn controls() {
    let raise = Control::RaiseBudget { iterations: 2, minutes: 1, cost_usd: 1.0, tokens: 5 };
    let run = RunBuilder::ready().then(Event::ControlApplied { control: raise, by: "x".to_owned(), id: None });
    assert_eq!((run.state.budget.iterations, run.state.budget.cost), (5, Some(MicroUsd(1_001_000))));
    let profile = Control::SetProfile { name: "strong".to_owned() };
    let run = run.then(Event::ControlApplied { control: profile, by: "x".to_owned(), id: None });
    assert_eq!(run.state.profile, "strong");
}

#[test]
fn the_policy_in_force() {
    let asked = |controls: &[Control]| {
        let apply = |run: RunBuilder, control: &Control| {
            run.then(Event::ControlApplied { control: control.clone(), by: "x".to_owned(), id: None })
        };
        let run = controls.iter().fold(RunBuilder::ready(), apply);
        // Folding the file again gives the same policy.
        assert_eq!(RunState::from_events(run.lines.clone()).unwrap().policy(), run.state.policy());
        serde_json::to_string(run.state.policy()).unwrap()
    };
    let allow = |host: &str| Control::AllowHost(host.into());
    let deny = |host: &str| Control::DenyHost(host.into());
    for (controls, want) in [
        (vec![], r#"{"mode":"deny","allow":[],"deny":[]}"#),
        (vec![allow("x.io"), allow("x.io")], r#"{"mode":"allowlist","allow":["x.io"],"deny":[]}"#),
        (vec![deny("x.io")], r#"{"mode":"deny","allow":[],"deny":["x.io"]}"#),
        (vec![deny("x.io"), allow("x.io")], r#"{"mode":"allowlist","allow":["x.io"],"deny":["x.io"]}"#),
        (vec![allow("nuget"), allow("*")], r#"{"mode":"allowlist","allow":["api.nuget.org"],"deny":[]}"#),
    ] {
        assert_eq!(asked(&controls), want, "{controls:?}");
    }
}

#[test]
fn refusals_and_anchors() {
    let denied = |host: &str, count| {
        let (host, rule) = (host.to_owned(), "a rule".to_owned());
        Event::PolicyDenied { host, port: 443, request: None, rule, remedy: None, count }
    };
    let anchored = Event::AuditAnchored { lines: 7, head: "ab".to_owned() };
    let run =
        RunBuilder::ready().then(denied("a.io", 1)).then(denied("a.io", 10)).then(denied("b.io", 1)).then(anchored);
    assert_eq!(run.state.denied, 2);
    assert_eq!(run.state.audited.map(|head| (head.lines, head.hash)), Some((7, "ab".to_owned())));
    let older = r#"{"seq":1,"at":"2026-01-02T03:04:05Z","type":"policy-denied","host":"a.io","port":443,"rule":"r"}"#;
    let (host, rule) = ("a.io".to_owned(), "r".to_owned());
    let event = Event::PolicyDenied { host, port: 443, request: None, rule, remedy: None, count: 1 };
    assert_eq!(EventLine::parse(older).unwrap().event, event);
}

#[test]
fn exit_codes() {
    let finished =
        |verdict: RunVerdict| RunBuilder::ready().then(Event::RunFinished { verdict, next: String::new() }).state;
    let paused = |reason: RunStopReason| RunBuilder::ready().then(Event::Paused { reason, next: String::new() }).state;
    let budget = RunStopReason::Budget { limit: ralph_core::budget::BudgetKind::Cost };
    let auth = RunStopReason::Auth { profile: "p".to_owned() };
    for (state, want) in [
        (finished(RunVerdict::Succeeded), RalphExitCode::Success),
        (finished(RunVerdict::Failed { reason: budget }), RalphExitCode::Budget),
        (finished(RunVerdict::Failed { reason: RunStopReason::Gutter }), RalphExitCode::Failed),
        (finished(RunVerdict::Failed { reason: RunStopReason::Baseline { why: String::new() } }), RalphExitCode::Usage),
        (finished(RunVerdict::Stopped { reason: RunStopReason::Asked }), RalphExitCode::Failed),
        (paused(auth), RalphExitCode::Auth),
        (paused(RunStopReason::Gutter), RalphExitCode::Paused),
        (paused(RunStopReason::Interrupted), RalphExitCode::Interrupted),
        (paused(RunStopReason::SandboxLost), RalphExitCode::NotReady),
    ] {
        assert_eq!(state.exit(), want, "{:?}", state.status);
    }
}

#[test]
fn resuming_a_stuck_run_clears_its_window() {
    let mut run = RunBuilder::ready();
    for n in 1..=3 {
        run = run.starts(n).answers(0).ends(&[]).scores(0.8);
    }
    assert_eq!(run.state.climb, LadderPosition { verdicts: 3, climbed: 3 });
    let run = run
        .then(Event::Paused { reason: RunStopReason::Gutter, next: String::new() })
        .then(Event::Resumed { by: "x".to_owned() });
    // The number of pauses is kept: with no rung left, the next one ends the run.
    assert_eq!((run.state.climb, run.state.window.len()), (LadderPosition { verdicts: 3, climbed: 3 }, 0));
    assert_eq!(run.state.status, RunStatus::Running);
    let run = run.starts(4).answers(0).ends(&[]).scores(0.8);
    let verdict = RunVerdict::Failed { reason: RunStopReason::Gutter };
    assert_eq!(run.next(), RunStep::Finish { verdict: verdict.clone() });
    let run = run.then(Event::RunFinished { verdict, next: String::new() });
    assert_eq!(run.state.exit(), RalphExitCode::Failed);
    assert_eq!(run.then(Event::Resumed { by: "x".to_owned() }).state.climb, LadderPosition::default());
}
