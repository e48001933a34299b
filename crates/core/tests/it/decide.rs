//! What comes next, for every place a run can stand at.

use std::collections::BTreeSet;

use ralph_core::budget::{Budget, BudgetKind};
use ralph_core::control::{Control, TaskEdit};
use ralph_core::decide::{self, DueCheck, RunStep};
use ralph_core::event::{
    ActionOutcome, BaselineProof, BaselineVerdict, CheckStage, Event, ModelCallOutcome, ReviewFinding, RunStart,
    RunStopReason, RunTestSchedule, RunVerdict,
};
use ralph_core::gutter::{LadderRung, MitigationCause};
use ralph_core::pr::PublishReason;

use crate::run_builder::{RunBuilder, started};

fn failed(reason: RunStopReason) -> RunStep {
    RunStep::Finish { verdict: RunVerdict::Failed { reason } }
}

fn budget(limit: BudgetKind) -> RunStep {
    failed(RunStopReason::Budget { limit })
}

#[track_caller]
fn check(story: &RunBuilder, want: &RunStep) {
    assert_eq!(story.next(), *want);
}

fn done(n: u32, verified: &[&str]) -> RunBuilder {
    RunBuilder::ready().starts(n).answers(1).acts(0, "run", ActionOutcome::Ok).ends(verified)
}

#[test]
fn from_nothing_to_the_first_call() {
    check(&RunBuilder::new(), &RunStep::Prepare);
    check(&RunBuilder::ready(), &RunStep::StartIteration { n: 1, profile: "cheap".to_owned() });
    let baseline = RunStart { baseline: true, ..started() };
    check(&RunBuilder::with(baseline).then(crate::run_builder::sandbox_ready("start", &[])), &RunStep::Baseline);
    check(&RunBuilder::ready().starts(1), &RunStep::CallModel { n: 1, call: 0, reask: None });
}

#[test]
fn one_bad_answer_is_asked_again_and_two_end_the_iteration() {
    let bad = |error: &str| ModelCallOutcome::Invalid { error: error.to_owned() };
    let once = RunBuilder::ready().starts(1).called(0, bad("first"), 1);
    check(&once, &RunStep::CallModel { n: 1, call: 1, reask: Some("first".to_owned()) });
    let twice = once.called(1, bad("second"), 1);
    check(&twice, &RunStep::Close { n: 1 });
    // A lost call is no bad answer.
    check(
        &RunBuilder::ready().starts(1).called(0, ModelCallOutcome::Lost, 1),
        &RunStep::CallModel { n: 1, call: 1, reask: None },
    );
}

#[test]
fn actions_in_order_until_the_first_failure() {
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
fn after_an_iteration() {
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
    let told = |story: RunBuilder| story.pushes("c1").opens_pr();
    check(&told(all(1)), &RunStep::StartIteration { n: 2, profile: "cheap".to_owned() });
    check(&told(all(0)), &RunStep::Prove);
    let half =
        told(all(0)).checks(CheckStage::Proof, "test", &["test"], 0).checks(CheckStage::Proof, "p1", &["M1.1"], 0);
    check(&half, &RunStep::Prove);
    let proved = half.checks(CheckStage::Proof, "p2", &["M2.1"], 0);
    check(&proved, &RunStep::Finish { verdict: RunVerdict::Succeeded });
    // A proof that fails outside the work sandbox sends the run back to work.
    let broken = told(all(0)).checks(CheckStage::Proof, "test", &["test"], 1);
    let broken = broken.checks(CheckStage::Proof, "p1", &["M1.1"], 0).checks(CheckStage::Proof, "p2", &["M2.1"], 0);
    check(&broken, &RunStep::StartIteration { n: 2, profile: "cheap".to_owned() });
    // Verified without a single commit: nothing was done, so nothing is handed over.
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
    let story = RunBuilder::with(one)
        .then(crate::run_builder::sandbox_ready("start", &[]))
        .starts(1)
        .answers(0)
        .checks(CheckStage::Iteration, "test", &["test"], 0)
        .imports("c1")
        .ends(&["M1.1", "M2.1"])
        .scores(0.0)
        .pushes("c1")
        .opens_pr();
    check(&story, &RunStep::Prove);
}

#[test]
fn budgets_end_the_run_before_the_next_call() {
    let spent = |cost: u64| {
        RunBuilder::ready().starts(1).called(0, ModelCallOutcome::Actions { count: 0, response: String::new() }, cost)
    };
    check(&spent(999).ends(&[]).scores(0.0), &RunStep::StartIteration { n: 2, profile: "cheap".to_owned() });
    check(&spent(1000).ends(&[]).scores(0.0), &budget(BudgetKind::Cost));
    // In the middle of an iteration: no re-ask with an empty purse.
    let asked = RunBuilder::ready().starts(1).called(0, ModelCallOutcome::Invalid { error: "x".to_owned() }, 1000);
    check(&asked, &budget(BudgetKind::Cost));
    let slow = RunBuilder::ready()
        .starts(1)
        .answers(0)
        .ends(&[])
        .after(60_000, Event::Log { level: ralph_core::event::EventLogLevel::Info, text: String::new() });
    check(&slow.scores(0.0), &budget(BudgetKind::Time));
    let mut worn = RunBuilder::ready();
    for n in 1..=3 {
        worn = worn.starts(n).answers(0).ends(&[]).scores(0.0);
    }
    check(&worn, &budget(BudgetKind::Iterations));
    // What was committed is handed over before the run ends.
    check(&worn.imports("c1").pushes("c0").opens_pr(), &RunStep::Publish { why: PublishReason::RunEnds });
}

#[test]
fn the_models_wishes() {
    let wish =
        |kind: &str| RunBuilder::ready().starts(1).answers(1).acts(0, kind, ActionOutcome::Ok).ends(&[]).scores(0.0);
    let why = || "why".to_owned();
    check(&wish("pause"), &RunStep::Pause { reason: RunStopReason::NeedsDecision { why: why() } });
    check(&wish("stop_failure"), &failed(RunStopReason::GaveUp { why: why() }));
    // Claiming success is only a claim.
    check(&wish("stop_success"), &RunStep::StartIteration { n: 2, profile: "cheap".to_owned() });
    check(&wish("rotate"), &RunStep::StartIteration { n: 2, profile: "cheap".to_owned() });
}

#[test]
fn the_ladder() {
    let stuck = |n: u32| RunBuilder::ready().starts(n).answers(0).ends(&[]).scores(0.8);
    check(&stuck(1), &RunStep::Mitigate { n: 1, rung: LadderRung::Rotate });
    let again = stuck(1)
        .then(Event::MitigationApplied {
            n: 1,
            rung: LadderRung::Rotate,
            profile: "cheap".to_owned(),
            why: "w".to_owned(),
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
        why: "w".to_owned(),
        cause: MitigationCause::Gutter,
    });
    check(&strong, &RunStep::StartIteration { n: 3, profile: "strong".to_owned() });
    // Progress goes back to the default profile.
    let better = strong.starts(3).answers(0).ends(&["M1.1"]).scores(0.5);
    assert_eq!(better.state.profile, "cheap");
}

#[test]
fn resting_runs_rest() {
    let paused = RunBuilder::ready().then(Event::Paused { reason: RunStopReason::Asked, next: String::new() });
    check(&paused, &RunStep::Rest);
    check(
        &paused.then(Event::Resumed { by: "x".to_owned() }),
        &RunStep::StartIteration { n: 1, profile: "cheap".to_owned() },
    );
}

#[test]
fn a_killed_run_forgets_nothing_it_was_about_to_do() {
    let killed = |story: RunBuilder| story.then(Event::Resumed { by: "x".to_owned() });
    let wish =
        |kind: &str| RunBuilder::ready().starts(1).answers(1).acts(0, kind, ActionOutcome::Ok).ends(&[]).scores(0.0);
    let why = || "why".to_owned();
    check(&killed(wish("pause")), &RunStep::Pause { reason: RunStopReason::NeedsDecision { why: why() } });
    check(&killed(wish("stop_failure")), &failed(RunStopReason::GaveUp { why: why() }));
    let stuck = || RunBuilder::ready().starts(1).answers(0).ends(&[]).scores(0.8);
    check(&killed(stuck()), &RunStep::Mitigate { n: 1, rung: LadderRung::Rotate });
    let (rung, cause) = (LadderRung::Pause, MitigationCause::Gutter);
    let waits = stuck().then(Event::MitigationApplied { n: 1, rung, profile: "cheap".to_owned(), why: why(), cause });
    check(&killed(waits), &RunStep::Pause { reason: RunStopReason::Gutter });
    let stop = ReviewFinding { rule: "secret".to_owned(), path: String::new(), detail: why(), stop: true };
    let found = Event::CommitImported { n: 1, sha: None, commits: 0, findings: vec![stop] };
    let found = RunBuilder::ready().starts(1).answers(0).then(found).ends(&[]).scores(0.0);
    check(&killed(found), &RunStep::Pause { reason: RunStopReason::Findings { why: why() } });
    let baseline = RunStart { baseline: true, ..started() };
    let refused = Event::BaselineChecked { checks: Vec::new(), refused: Some(why()) };
    let vacuous = RunBuilder::with(baseline).then(crate::run_builder::sandbox_ready("start", &[])).then(refused);
    check(&killed(vacuous), &failed(RunStopReason::Baseline { why: why() }));
    // One proof has failed, and the others have not been told yet.
    let cut_off = done(1, &["M1.1", "M2.1"]).scores(0.1).imports("c1").pushes("c1").opens_pr();
    let cut_off = cut_off.checks(CheckStage::Proof, "test", &["test"], 0).checks(CheckStage::Proof, "p1", &["M1.1"], 1);
    check(&killed(cut_off), &RunStep::Prove);
    // Pushed, but the pull request does not say so yet.
    let pushed = done(1, &[]).scores(0.1).imports("c1").pushes("c1");
    let again = killed(pushed).opens_pr().starts(2).answers(0).imports("c2").ends(&["M1.1"]).scores(0.1).pushes("c2");
    check(&killed(again), &RunStep::Publish { why: PublishReason::MilestoneComplete });
}

#[test]
fn a_person_who_resumes_has_seen_why_it_rested() {
    let rested = |story: RunBuilder, reason: RunStopReason| {
        let paused = story.then(Event::Paused { reason, next: String::new() });
        paused.then(Event::Resumed { by: "x".to_owned() })
    };
    let wish = || RunBuilder::ready().starts(1).answers(1).acts(0, "pause", ActionOutcome::Ok).ends(&[]).scores(0.0);
    let why = || "why".to_owned();
    let next = RunStep::StartIteration { n: 2, profile: "cheap".to_owned() };
    check(&rested(wish(), RunStopReason::NeedsDecision { why: why() }), &next);
    // Ctrl-C is no answer to the model's question.
    let asks = RunStep::Pause { reason: RunStopReason::NeedsDecision { why: why() } };
    check(&rested(wish(), RunStopReason::Interrupted), &asks);
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
    // Nothing has changed: what showed nothing before shows nothing now.
    check(&vacuous, &failed(RunStopReason::Baseline { why: why() }));
}

#[test]
fn the_base_is_asked_again_when_something_else_is_asked_of_it() {
    let refused = |verdict: BaselineVerdict| {
        let check = BaselineProof { proves: vec!["test".to_owned()], command: "test".to_owned(), verdict };
        let told = Event::BaselineChecked { checks: vec![check], refused: Some("why".to_owned()) };
        let reason = RunStopReason::Baseline { why: "why".to_owned() };
        RunBuilder::with(RunStart { baseline: true, ..started() })
            .then(crate::run_builder::sandbox_ready("start", &[]))
            .then(told)
            .then(Event::RunFinished { verdict: RunVerdict::Failed { reason }, next: String::new() })
    };
    let resumed = |story: RunBuilder| story.then(Event::Resumed { by: "x".to_owned() });
    let edited = |story: RunBuilder, proof: &str| {
        let text = format!(
            "---\ntask_id: t1\ntest_command: test\n---\n# T\n- [ ] M1.1 a\n  - verify: `p1`\n- [ ] M2.1 b\n  - verify: `{proof}`\n"
        );
        let control = Control::EditTask(TaskEdit { text, ..TaskEdit::default() });
        story.then(Event::ControlApplied { control, by: "x".to_owned() })
    };
    let refusal = failed(RunStopReason::Baseline { why: "why".to_owned() });
    for (verdict, want) in [
        (BaselineVerdict::Vacuous, refusal),
        // A person may have installed it, or allowed it.
        (BaselineVerdict::MissingTool, RunStep::Baseline),
        (BaselineVerdict::DeniedHost, RunStep::Baseline),
    ] {
        assert_eq!(refused(verdict).state.baseline_blocker().is_some(), want != RunStep::Baseline, "{verdict:?}");
        check(&resumed(refused(verdict)), &want);
        check(&resumed(edited(refused(verdict), "p2")), &RunStep::Baseline);
    }
    let sound = || {
        let told = Event::BaselineChecked { checks: Vec::new(), refused: None };
        let ready = RunBuilder::with(RunStart { baseline: true, ..started() })
            .then(crate::run_builder::sandbox_ready("start", &[]));
        ready.then(told).starts(1)
    };
    check(&edited(sound(), "p3"), &RunStep::Baseline);
    // Other words, the same proofs.
    check(&edited(sound(), "p2"), &RunStep::CallModel { n: 1, call: 0, reask: None });
    // Who wanted no red first at the start wants none later.
    check(&edited(RunBuilder::ready().starts(1), "p3"), &RunStep::CallModel { n: 1, call: 0, reask: None });
}

fn due(command: &str, proves: &[&str]) -> DueCheck {
    DueCheck { command: command.to_owned(), proves: proves.iter().map(|id| (*id).to_owned()).collect() }
}

fn set(ids: &[&str]) -> BTreeSet<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

#[test]
fn which_checks_are_due() {
    let all = || vec![due("test", &["test"]), due("p1", &["M1.1"]), due("p2", &["M2.1"])];
    for (verified, claimed, changed, want) in [
        (set(&[]), set(&[]), false, vec![]),
        (set(&[]), set(&[]), true, vec![due("test", &["test"])]),
        (set(&[]), set(&["M1.1"]), true, vec![due("test", &["test"]), due("p1", &["M1.1"])]),
        (set(&[]), set(&["nonsense"]), false, vec![]),
        // The claim that would complete the task has everything looked at again.
        (set(&["M1.1"]), set(&["M2.1"]), false, all()),
        (set(&["M1.1", "M2.1"]), set(&[]), true, all()),
    ] {
        assert_eq!(
            decide::checks_due(&started(), &verified, &claimed, changed),
            want,
            "{verified:?} {claimed:?} {changed}"
        );
    }
    let on_claim = RunStart { test_every: RunTestSchedule::Claim, ..started() };
    assert_eq!(decide::checks_due(&on_claim, &set(&[]), &set(&[]), true), []);
    // One command that proves several things runs once.
    let mut shared = started();
    for pinned in &mut shared.boxes {
        pinned.proofs = vec!["test".to_owned()];
    }
    assert_eq!(decide::proof_due(&shared), [due("test", &["test", "M1.1", "M2.1"])]);
}

#[test]
fn what_stands_verified() {
    let story = |code: i32| {
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
        // A proof that passed without a claim ticks nothing; one that failed takes a tick back.
        (set(&[]), set(&[]), 0, set(&[])),
        (set(&["M1.1"]), set(&[]), 1, set(&[])),
        // Claimed, and its proof did not run.
        (set(&[]), set(&["M2.1"]), 0, set(&[])),
        (set(&["M2.1"]), set(&["M1.1"]), 0, set(&["M1.1", "M2.1"])),
    ] {
        assert_eq!(
            decide::verified_after(&started(), &before, &claimed, &story(code)),
            want,
            "{before:?} {claimed:?} {code}"
        );
    }
}

#[test]
fn what_was_claimed() {
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
        let claimed = decide::resolve_claims(&started(), &boxes, &milestones, success);
        assert_eq!((claimed.boxes, claimed.unknown), (want, unknown), "{boxes:?} {milestones:?}");
    }
    // Without headings a milestone is what its ids begin with.
    let mut bare = started();
    bare.boxes.iter_mut().for_each(|pinned| pinned.milestone = None);
    let claimed = decide::resolve_claims(&bare, &[], &list(&["M2", "M"]), false);
    assert_eq!((claimed.boxes, claimed.unknown), (set(&["M2.1"]), list(&["M"])));
    // Where two boxes say the same, their words name neither.
    let mut twins = started();
    twins.boxes.iter_mut().for_each(|pinned| pinned.text = "it works".to_owned());
    let claimed = decide::resolve_claims(&twins, &list(&["it works"]), &[], false);
    assert_eq!((claimed.boxes, claimed.unknown), (set(&[]), list(&["it works"])));
}
