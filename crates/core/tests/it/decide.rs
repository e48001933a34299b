//! The next step, for every state a run can be in.

use std::collections::BTreeSet;

use ralph_core::budget::{Budget, BudgetKind};
use ralph_core::control_request::{Control, TaskEdit};
use ralph_core::decide_next_step::{self, DueCheck, RunStep};
use ralph_core::event::{
    ActionOutcome, BaselineProof, BaselineVerdict, CheckStage, Event, ModelCallOutcome, ReviewFinding, RunStart,
    RunStopReason, RunTestSchedule, RunVerdict,
};
use ralph_core::gutter::{LadderRung, MitigationCause};
use ralph_core::pull_request::PublishReason;
use ralph_core::redact::MaskedText;

use crate::run_builder::{RunBuilder, started};

fn failed(reason: RunStopReason) -> RunStep {
    RunStep::Finish { verdict: RunVerdict::Failed { reason } }
}

fn budget(limit: BudgetKind) -> RunStep {
    failed(RunStopReason::Budget { limit })
}

#[track_caller]
fn check(run: &RunBuilder, want: &RunStep) {
    assert_eq!(run.next(), *want);
}

fn done(n: u32, verified: &[&str]) -> RunBuilder {
    RunBuilder::ready().starts(n).answers(1).acts(0, "run", ActionOutcome::Ok).ends(verified)
}

#[test]
fn steps_before_the_first_call() {
    check(&RunBuilder::new(), &RunStep::Prepare);
    check(&RunBuilder::ready(), &RunStep::StartIteration { n: 1, profile: "cheap".to_owned() });
    let baseline = RunStart { baseline: true, ..started() };
    check(&RunBuilder::with(baseline).then(crate::run_builder::sandbox_ready("start", &[])), &RunStep::Baseline);
    check(&RunBuilder::ready().starts(1), &RunStep::CallModel { n: 1, call: 0, reask: None });
}

#[test]
fn a_bad_answer_is_retried_once() {
    let bad = |error: &'static str| ModelCallOutcome::Invalid { error: error.into() };
    let once = RunBuilder::ready().starts(1).called(0, bad("first"), 1);
    check(&once, &RunStep::CallModel { n: 1, call: 1, reask: Some("first".to_owned()) });
    let twice = once.called(1, bad("second"), 1);
    check(&twice, &RunStep::Close { n: 1 });
    // A lost call is not a bad answer.
    check(
        &RunBuilder::ready().starts(1).called(0, ModelCallOutcome::Lost, 1),
        &RunStep::CallModel { n: 1, call: 1, reask: None },
    );
}

#[test]
fn actions_run_in_order_until_the_first_failure() {
    let two = RunBuilder::ready().starts(1).answers(2);
    check(&two, &RunStep::Act { n: 1, index: 0, again: false });
    check(&RunBuilder::ready().starts(1).answers(2).begins(0, "run"), &RunStep::Act { n: 1, index: 0, again: true });
    check(
        &RunBuilder::ready().starts(1).answers(2).acts(0, "run", ActionOutcome::Ok),
        &RunStep::Act { n: 1, index: 1, again: false },
    );
    for outcome in [ActionOutcome::Failed, ActionOutcome::Refused] {
        check(&RunBuilder::ready().starts(1).answers(2).acts(0, "run", outcome), &RunStep::Close { n: 1 });
    }
    check(
        &RunBuilder::ready().starts(1).answers(9).acts(0, "stop_success", ActionOutcome::Ok),
        &RunStep::Close { n: 1 },
    );
    check(&RunBuilder::ready().starts(1).answers(0), &RunStep::Close { n: 1 });
}

#[test]
fn steps_after_an_iteration() {
    check(&done(1, &[]), &RunStep::Score { n: 1 });
    check(&done(1, &[]).scores(0.1), &RunStep::StartIteration { n: 2, profile: "cheap".to_owned() });
    check(&done(1, &[]).scores(0.1).imports("c1"), &RunStep::Publish { why: PublishReason::FirstCommits });
    let published = || done(1, &[]).scores(0.1).imports("c1").pushes("c1").opens_pr();
    check(&published(), &RunStep::StartIteration { n: 2, profile: "cheap".to_owned() });
    // More commits alone are not pushed; a complete milestone is.
    let more = published().starts(2).answers(0).imports("c2").ends(&[]).scores(0.1);
    check(&more, &RunStep::StartIteration { n: 3, profile: "cheap".to_owned() });
    let milestone = published().starts(2).answers(0).imports("c2").ends(&["M1.1"]).scores(0.1);
    check(&milestone, &RunStep::Publish { why: PublishReason::MilestoneComplete });
}

#[test]
fn success_needs_every_box_the_gate_the_push_and_the_proof() {
    let all = |gate: i32| {
        RunBuilder::ready()
            .starts(1)
            .answers(0)
            .checks(CheckStage::Iteration, "test", &["test"], gate)
            .imports("c1")
            .ends(&["M1.1", "M2.1"])
            .scores(0.0)
    };
    check(&all(0), &RunStep::Publish { why: PublishReason::FirstCommits });
    let published = |run: RunBuilder| run.pushes("c1").opens_pr();
    check(&published(all(1)), &RunStep::StartIteration { n: 2, profile: "cheap".to_owned() });
    check(&published(all(0)), &RunStep::Prove);
    let half =
        published(all(0)).checks(CheckStage::Proof, "test", &["test"], 0).checks(CheckStage::Proof, "p1", &["M1.1"], 0);
    check(&half, &RunStep::Prove);
    let proved = half.checks(CheckStage::Proof, "p2", &["M2.1"], 0);
    check(&proved, &RunStep::Finish { verdict: RunVerdict::Succeeded });
    // A proof that fails outside the work sandbox makes the run continue working.
    let broken = published(all(0)).checks(CheckStage::Proof, "test", &["test"], 1);
    let broken = broken.checks(CheckStage::Proof, "p1", &["M1.1"], 0).checks(CheckStage::Proof, "p2", &["M2.1"], 0);
    check(&broken, &RunStep::StartIteration { n: 2, profile: "cheap".to_owned() });
    // Verified without a single commit: nothing was done, so nothing is published.
    let idle = RunBuilder::ready()
        .starts(1)
        .answers(0)
        .checks(CheckStage::Iteration, "test", &["test"], 0)
        .ends(&["M1.1", "M2.1"])
        .scores(0.0);
    assert!(matches!(
        idle.next(),
        RunStep::Finish { verdict: RunVerdict::Failed { reason: RunStopReason::VerificationFailed { .. } } }
    ));
}

#[test]
fn success_in_the_last_iteration_is_success() {
    let one = RunStart { budget: Budget { iterations: 1, ..started().budget }, ..started() };
    let run = RunBuilder::with(one)
        .then(crate::run_builder::sandbox_ready("start", &[]))
        .starts(1)
        .answers(0)
        .checks(CheckStage::Iteration, "test", &["test"], 0)
        .imports("c1")
        .ends(&["M1.1", "M2.1"])
        .scores(0.0)
        .pushes("c1")
        .opens_pr();
    check(&run, &RunStep::Prove);
}

#[test]
fn budgets_end_the_run_before_the_next_call() {
    let spent = |cost: u64| {
        RunBuilder::ready().starts(1).called(0, ModelCallOutcome::Actions { count: 0, response: String::new() }, cost)
    };
    check(&spent(999).ends(&[]).scores(0.0), &RunStep::StartIteration { n: 2, profile: "cheap".to_owned() });
    check(&spent(1000).ends(&[]).scores(0.0), &budget(BudgetKind::Cost));
    // In the middle of an iteration: no second attempt with a spent budget.
    let asked = RunBuilder::ready().starts(1).called(0, ModelCallOutcome::Invalid { error: "x".into() }, 1000);
    check(&asked, &budget(BudgetKind::Cost));
    let slow = RunBuilder::ready()
        .starts(1)
        .answers(0)
        .ends(&[])
        .after(60_000, Event::Log { level: ralph_core::event::EventLogLevel::Info, text: MaskedText::default() });
    check(&slow.scores(0.0), &budget(BudgetKind::Time));
    let mut worn = RunBuilder::ready();
    for n in 1..=3 {
        worn = worn.starts(n).answers(0).ends(&[]).scores(0.0);
    }
    check(&worn, &budget(BudgetKind::Iterations));
    // Committed work is published before the run ends.
    check(&worn.imports("c1").pushes("c0").opens_pr(), &RunStep::Publish { why: PublishReason::RunEnds });
}

#[test]
fn final_actions_of_the_model() {
    let ending_with =
        |kind: &str| RunBuilder::ready().starts(1).answers(1).acts(0, kind, ActionOutcome::Ok).ends(&[]).scores(0.0);
    let why = || "why".to_owned();
    check(&ending_with("pause"), &RunStep::Pause { reason: RunStopReason::NeedsDecision { why: why() } });
    check(&ending_with("stop_failure"), &failed(RunStopReason::GaveUp { why: why() }));
    // The model's claim of success is only a claim.
    check(&ending_with("stop_success"), &RunStep::StartIteration { n: 2, profile: "cheap".to_owned() });
    check(&ending_with("rotate"), &RunStep::StartIteration { n: 2, profile: "cheap".to_owned() });
}

#[test]
fn rungs_of_the_ladder() {
    let stuck = |n: u32| RunBuilder::ready().starts(n).answers(0).ends(&[]).scores(0.8);
    check(&stuck(1), &RunStep::Mitigate { n: 1, rung: LadderRung::Rotate });
    let again = stuck(1)
        .then(Event::MitigationApplied {
            n: 1,
            rung: LadderRung::Rotate,
            profile: "cheap".to_owned(),
            why: "w".into(),
            cause: MitigationCause::Gutter,
        })
        .starts(2)
        .answers(0)
        .ends(&[])
        .scores(0.8);
    check(&again, &RunStep::Mitigate { n: 2, rung: LadderRung::Fallback });
    let strong = again.then(Event::MitigationApplied {
        n: 2,
        rung: LadderRung::Fallback,
        profile: "strong".to_owned(),
        why: "w".into(),
        cause: MitigationCause::Gutter,
    });
    check(&strong, &RunStep::StartIteration { n: 3, profile: "strong".to_owned() });
    // Progress returns to the default profile.
    let better = strong.starts(3).answers(0).ends(&["M1.1"]).scores(0.5);
    assert_eq!(better.state.profile, "cheap");
}

#[test]
fn a_paused_run_waits_for_a_resume() {
    let paused = RunBuilder::ready().then(Event::Paused { reason: RunStopReason::Asked, next: String::new() });
    check(&paused, &RunStep::Rest);
    check(
        &paused.then(Event::Resumed { by: "x".to_owned() }),
        &RunStep::StartIteration { n: 1, profile: "cheap".to_owned() },
    );
}

#[test]
fn a_killed_run_continues_with_its_next_step() {
    let killed = |run: RunBuilder| run.then(Event::Resumed { by: "x".to_owned() });
    let ending_with =
        |kind: &str| RunBuilder::ready().starts(1).answers(1).acts(0, kind, ActionOutcome::Ok).ends(&[]).scores(0.0);
    let why = || "why".to_owned();
    check(&killed(ending_with("pause")), &RunStep::Pause { reason: RunStopReason::NeedsDecision { why: why() } });
    check(&killed(ending_with("stop_failure")), &failed(RunStopReason::GaveUp { why: why() }));
    let stuck = || RunBuilder::ready().starts(1).answers(0).ends(&[]).scores(0.8);
    check(&killed(stuck()), &RunStep::Mitigate { n: 1, rung: LadderRung::Rotate });
    let (rung, cause) = (LadderRung::Pause, MitigationCause::Gutter);
    let waits =
        stuck().then(Event::MitigationApplied { n: 1, rung, profile: "cheap".to_owned(), why: "why".into(), cause });
    check(&killed(waits), &RunStep::Pause { reason: RunStopReason::Gutter });
    let stop = ReviewFinding { rule: "secret".to_owned(), path: String::new(), detail: why(), stop: true };
    let found = Event::CommitImported { n: 1, sha: None, commits: 0, findings: vec![stop] };
    let found = RunBuilder::ready().starts(1).answers(0).then(found).ends(&[]).scores(0.0);
    check(&killed(found), &RunStep::Pause { reason: RunStopReason::Findings { why: why() } });
    let baseline = RunStart { baseline: true, ..started() };
    let refused = Event::BaselineChecked { checks: Vec::new(), refused: Some(why()) };
    let vacuous = RunBuilder::with(baseline).then(crate::run_builder::sandbox_ready("start", &[])).then(refused);
    check(&killed(vacuous), &failed(RunStopReason::Baseline { why: why() }));
    // One proof has failed, and the results of the others are not recorded yet.
    let cut_off = done(1, &["M1.1", "M2.1"]).scores(0.1).imports("c1").pushes("c1").opens_pr();
    let cut_off = cut_off.checks(CheckStage::Proof, "test", &["test"], 0).checks(CheckStage::Proof, "p1", &["M1.1"], 1);
    check(&killed(cut_off), &RunStep::Prove);
    // Pushed, but the pull request is not updated yet.
    let pushed = done(1, &[]).scores(0.1).imports("c1").pushes("c1");
    let again = killed(pushed).opens_pr().starts(2).answers(0).imports("c2").ends(&["M1.1"]).scores(0.1).pushes("c2");
    check(&killed(again), &RunStep::Publish { why: PublishReason::MilestoneComplete });
}

#[test]
fn resuming_clears_the_reason_for_the_pause() {
    let resumed = |run: RunBuilder, reason: RunStopReason| {
        let paused = run.then(Event::Paused { reason, next: String::new() });
        paused.then(Event::Resumed { by: "x".to_owned() })
    };
    let ending_with =
        || RunBuilder::ready().starts(1).answers(1).acts(0, "pause", ActionOutcome::Ok).ends(&[]).scores(0.0);
    let why = || "why".to_owned();
    let next = RunStep::StartIteration { n: 2, profile: "cheap".to_owned() };
    check(&resumed(ending_with(), RunStopReason::NeedsDecision { why: why() }), &next);
    // Ctrl-C does not answer the model's question.
    let asks = RunStep::Pause { reason: RunStopReason::NeedsDecision { why: why() } };
    check(&resumed(ending_with(), RunStopReason::Interrupted), &asks);
    let baseline = RunStart { baseline: true, ..started() };
    let refused = Event::BaselineChecked { checks: Vec::new(), refused: Some(why()) };
    let vacuous = RunBuilder::with(baseline)
        .then(crate::run_builder::sandbox_ready("start", &[]))
        .then(refused)
        .then(Event::RunFinished {
            verdict: RunVerdict::Failed { reason: RunStopReason::Baseline { why: why() } },
            next: String::new(),
        })
        .then(Event::Resumed { by: "x".to_owned() });
    // Nothing has changed: a baseline that showed nothing before shows nothing now.
    check(&vacuous, &failed(RunStopReason::Baseline { why: why() }));
}

#[test]
fn the_baseline_is_repeated_when_its_commands_change() {
    let refused = |verdict: BaselineVerdict| {
        let check = BaselineProof { proves: vec!["test".into()], command: "test".to_owned(), verdict };
        let checked = Event::BaselineChecked { checks: vec![check], refused: Some("why".to_owned()) };
        let reason = RunStopReason::Baseline { why: "why".to_owned() };
        RunBuilder::with(RunStart { baseline: true, ..started() })
            .then(crate::run_builder::sandbox_ready("start", &[]))
            .then(checked)
            .then(Event::RunFinished { verdict: RunVerdict::Failed { reason }, next: String::new() })
    };
    let resumed = |run: RunBuilder| run.then(Event::Resumed { by: "x".to_owned() });
    let edited = |run: RunBuilder, proof: &str| {
        let text = format!(
            "---\ntask_id: t1\ntest_command: test\n---\n# T\n- [ ] M1.1 a\n  - verify: `p1`\n- [ ] M2.1 b\n  - verify: `{proof}`\n"
        );
        let control = Control::EditTask(TaskEdit { text, ..TaskEdit::default() });
        run.then(Event::ControlApplied { control, by: "x".to_owned(), id: None })
    };
    let refusal = failed(RunStopReason::Baseline { why: "why".to_owned() });
    for (verdict, want) in [
        (BaselineVerdict::Vacuous, refusal),
        // The user may have installed it, or allowed it.
        (BaselineVerdict::MissingTool, RunStep::Baseline),
        (BaselineVerdict::DeniedHost, RunStep::Baseline),
    ] {
        assert_eq!(refused(verdict).state.baseline_blocker().is_some(), want != RunStep::Baseline, "{verdict:?}");
        check(&resumed(refused(verdict)), &want);
        check(&resumed(edited(refused(verdict), "p2")), &RunStep::Baseline);
    }
    let sound = || {
        let checked = Event::BaselineChecked { checks: Vec::new(), refused: None };
        let ready = RunBuilder::with(RunStart { baseline: true, ..started() })
            .then(crate::run_builder::sandbox_ready("start", &[]));
        ready.then(checked).starts(1)
    };
    check(&edited(sound(), "p3"), &RunStep::Baseline);
    // Different words, the same proofs.
    check(&edited(sound(), "p2"), &RunStep::CallModel { n: 1, call: 0, reask: None });
    // A run that started without a baseline gets none later.
    check(&edited(RunBuilder::ready().starts(1), "p3"), &RunStep::CallModel { n: 1, call: 0, reask: None });
}

fn due(command: &str, proves: &[&str]) -> DueCheck {
    DueCheck { command: command.to_owned(), proves: proves.iter().map(|id| (*id).into()).collect() }
}

fn set(ids: &[&str]) -> BTreeSet<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

#[test]
fn due_checks() {
    let all = || vec![due("test", &["test"]), due("p1", &["M1.1"]), due("p2", &["M2.1"])];
    for (verified, claimed, changed, want) in [
        (set(&[]), set(&[]), false, vec![]),
        (set(&[]), set(&[]), true, vec![due("test", &["test"])]),
        (set(&[]), set(&["M1.1"]), true, vec![due("test", &["test"]), due("p1", &["M1.1"])]),
        (set(&[]), set(&["nonsense"]), false, vec![]),
        // A change may have broken what was verified before.
        (set(&["M1.1"]), set(&[]), true, vec![due("test", &["test"]), due("p1", &["M1.1"])]),
        (set(&["M1.1"]), set(&[]), false, vec![]),
        // The claim that would complete the task causes every check to run again.
        (set(&["M1.1"]), set(&["M2.1"]), false, all()),
        (set(&["M1.1", "M2.1"]), set(&[]), true, all()),
    ] {
        assert_eq!(
            decide_next_step::checks_due(&started(), &verified, &claimed, changed),
            want,
            "{verified:?} {claimed:?} {changed}"
        );
    }
    // Gates run with the test command, whatever proves the boxes; a command that is both runs once.
    let gated = RunStart { gates: vec!["lint".to_owned(), "p1".to_owned()], ..started() };
    let with_gates = || vec![due("test", &["test"]), due("lint", &["verify-1"]), due("p1", &["verify-2"])];
    assert_eq!(decide_next_step::checks_due(&gated, &set(&[]), &set(&[]), true), with_gates());
    assert_eq!(
        decide_next_step::proof_due(&gated),
        [due("test", &["test"]), due("lint", &["verify-1"]), due("p1", &["verify-2", "M1.1"]), due("p2", &["M2.1"])]
    );
    let on_claim = RunStart { test_every: RunTestSchedule::Claim, ..started() };
    assert_eq!(decide_next_step::checks_due(&on_claim, &set(&[]), &set(&[]), true), []);
    // One command that proves several boxes runs once.
    let mut shared = started();
    for pinned in &mut shared.boxes {
        pinned.proofs = vec!["test".to_owned()];
    }
    assert_eq!(decide_next_step::proof_due(&shared), [due("test", &["test", "M1.1", "M2.1"])]);
}

#[test]
fn verified_boxes() {
    let run = |code: i32| {
        RunBuilder::ready()
            .starts(1)
            .answers(0)
            .checks(CheckStage::Iteration, "p1", &["M1.1"], code)
            .state
            .open
            .unwrap()
    };
    for (before, claimed, code, want) in [
        (set(&[]), set(&["M1.1"]), 0, set(&["M1.1"])),
        (set(&[]), set(&["M1.1"]), 1, set(&[])),
        // A proof that passed without a claim ticks nothing; one that failed unticks its box.
        (set(&[]), set(&[]), 0, set(&[])),
        (set(&["M1.1"]), set(&[]), 1, set(&[])),
        // Claimed, but its proof did not run.
        (set(&[]), set(&["M2.1"]), 0, set(&[])),
        (set(&["M2.1"]), set(&["M1.1"]), 0, set(&["M1.1", "M2.1"])),
    ] {
        assert_eq!(
            decide_next_step::verified_after(&started(), &before, &claimed, &run(code)),
            want,
            "{before:?} {claimed:?} {code}"
        );
    }
}

#[test]
fn claimed_boxes() {
    let list = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect::<Vec<_>>();
    for (boxes, milestones, success, want, unknown) in [
        (list(&["M1.1", "no"]), list(&[]), false, set(&["M1.1"]), list(&["no"])),
        (list(&["M1.1 box", "M2.1: done", " "]), list(&[]), false, set(&["M1.1", "M2.1"]), list(&[])),
        (list(&["box  M2.1 "]), list(&[]), false, set(&["M2.1"]), list(&[])),
        (list(&["M1", "box", "M1.10"]), list(&[]), false, set(&[]), list(&["M1", "box", "M1.10"])),
        (list(&[]), list(&["M2"]), false, set(&["M2.1"]), list(&[])),
        (list(&[]), list(&["M2 two", "", "M3"]), false, set(&["M2.1"]), list(&["M3"])),
        (list(&[]), list(&[]), true, set(&["M1.1", "M2.1"]), list(&[])),
    ] {
        let claimed = decide_next_step::resolve_claims(&started(), &boxes, &milestones, success);
        assert_eq!((claimed.boxes, claimed.unknown), (want, unknown), "{boxes:?} {milestones:?}");
    }
    // Without headings, a milestone is the prefix of its ids.
    let mut bare = started();
    bare.boxes.iter_mut().for_each(|pinned| pinned.milestone = None);
    let claimed = decide_next_step::resolve_claims(&bare, &[], &list(&["M2", "M"]), false);
    assert_eq!((claimed.boxes, claimed.unknown), (set(&["M2.1"]), list(&["M"])));
    // When two boxes have the same text, the text identifies neither.
    let mut twins = started();
    twins.boxes.iter_mut().for_each(|pinned| pinned.text = "it works".to_owned());
    let claimed = decide_next_step::resolve_claims(&twins, &list(&["it works"]), &[], false);
    assert_eq!((claimed.boxes, claimed.unknown), (set(&[]), list(&["it works"])));
}
