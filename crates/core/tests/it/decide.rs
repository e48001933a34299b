//! What comes next, for every place a run can stand at.

use std::collections::BTreeSet;

use ralph_core::budget::{Budget, Limit};
use ralph_core::control::{Control, TaskEdit};
use ralph_core::decide::{self, Due, Step};
use ralph_core::event::{
    Answer, Baseline, BaselineVerdict, Event, Finding, Outcome, Reason, Stage, Started, TestEvery, Verdict,
};
use ralph_core::gutter::{Cause, Rung};

use crate::story::{Story, started};

fn failed(reason: Reason) -> Step {
    Step::Finish { verdict: Verdict::Failed { reason } }
}

fn budget(limit: Limit) -> Step {
    failed(Reason::Budget { limit })
}

#[track_caller]
fn check(story: &Story, want: &Step) {
    assert_eq!(story.next(), *want);
}

fn done(n: u32, verified: &[&str]) -> Story {
    Story::ready().starts(n).answers(1).acts(0, "run", Outcome::Ok).ends(verified)
}

#[test]
fn from_nothing_to_the_first_call() {
    check(&Story::new(), &Step::Prepare);
    check(&Story::ready(), &Step::StartIteration { n: 1, profile: "cheap".to_owned() });
    let baseline = Started { baseline: true, ..started() };
    check(&Story::with(baseline).then(crate::story::sandbox_ready("start", &[])), &Step::Baseline);
    check(&Story::ready().starts(1), &Step::CallModel { n: 1, call: 0, reask: None });
}

#[test]
fn one_bad_answer_is_asked_again_and_two_end_the_iteration() {
    let bad = |error: &str| Answer::Invalid { error: error.to_owned() };
    let once = Story::ready().starts(1).called(0, bad("first"), 1);
    check(&once, &Step::CallModel { n: 1, call: 1, reask: Some("first".to_owned()) });
    let twice = once.called(1, bad("second"), 1);
    check(&twice, &Step::Close { n: 1 });
    // A lost call is no bad answer.
    check(&Story::ready().starts(1).called(0, Answer::Lost, 1), &Step::CallModel { n: 1, call: 1, reask: None });
}

#[test]
fn actions_in_order_until_the_first_failure() {
    let two = Story::ready().starts(1).answers(2);
    check(&two, &Step::Act { n: 1, index: 0, again: false });
    check(&Story::ready().starts(1).answers(2).begins(0, "run"), &Step::Act { n: 1, index: 0, again: true });
    check(
        &Story::ready().starts(1).answers(2).acts(0, "run", Outcome::Ok),
        &Step::Act { n: 1, index: 1, again: false },
    );
    for outcome in [Outcome::Failed, Outcome::Refused] {
        check(&Story::ready().starts(1).answers(2).acts(0, "run", outcome), &Step::Close { n: 1 });
    }
    check(&Story::ready().starts(1).answers(9).acts(0, "stop_success", Outcome::Ok), &Step::Close { n: 1 });
    check(&Story::ready().starts(1).answers(0), &Step::Close { n: 1 });
}

#[test]
fn after_an_iteration() {
    check(&done(1, &[]), &Step::Score { n: 1 });
    check(&done(1, &[]).scores(0.1), &Step::StartIteration { n: 2, profile: "cheap".to_owned() });
    check(&done(1, &[]).scores(0.1).imports("c1"), &Step::Publish { why: "first commits" });
    let published = || done(1, &[]).scores(0.1).imports("c1").pushes("c1").opens_pr();
    check(&published(), &Step::StartIteration { n: 2, profile: "cheap".to_owned() });
    // More commits alone are not pushed; a complete milestone is.
    let more = published().starts(2).answers(0).imports("c2").ends(&[]).scores(0.1);
    check(&more, &Step::StartIteration { n: 3, profile: "cheap".to_owned() });
    let milestone = published().starts(2).answers(0).imports("c2").ends(&["M1.1"]).scores(0.1);
    check(&milestone, &Step::Publish { why: "milestone complete" });
}

#[test]
fn success_needs_every_box_the_gate_the_push_and_the_proof() {
    let all = |gate: i32| {
        Story::ready()
            .starts(1)
            .answers(0)
            .checks(Stage::Iteration, "test", &["test"], gate)
            .imports("c1")
            .ends(&["M1.1", "M2.1"])
            .scores(0.0)
    };
    check(&all(0), &Step::Publish { why: "first commits" });
    let told = |story: Story| story.pushes("c1").opens_pr();
    check(&told(all(1)), &Step::StartIteration { n: 2, profile: "cheap".to_owned() });
    check(&told(all(0)), &Step::Prove);
    let half = told(all(0)).checks(Stage::Proof, "test", &["test"], 0).checks(Stage::Proof, "p1", &["M1.1"], 0);
    check(&half, &Step::Prove);
    let proved = half.checks(Stage::Proof, "p2", &["M2.1"], 0);
    check(&proved, &Step::Finish { verdict: Verdict::Succeeded });
    // A proof that fails outside the work sandbox sends the run back to work.
    let broken = told(all(0)).checks(Stage::Proof, "test", &["test"], 1);
    let broken = broken.checks(Stage::Proof, "p1", &["M1.1"], 0).checks(Stage::Proof, "p2", &["M2.1"], 0);
    check(&broken, &Step::StartIteration { n: 2, profile: "cheap".to_owned() });
    // Verified without a single commit: nothing was done, so nothing is handed over.
    let idle = Story::ready()
        .starts(1)
        .answers(0)
        .checks(Stage::Iteration, "test", &["test"], 0)
        .ends(&["M1.1", "M2.1"])
        .scores(0.0);
    assert!(matches!(
        idle.next(),
        Step::Finish { verdict: Verdict::Failed { reason: Reason::VerificationFailed { .. } } }
    ));
}

#[test]
fn success_in_the_last_iteration_is_success() {
    let one = Started { budget: Budget { iterations: 1, ..started().budget }, ..started() };
    let story = Story::with(one)
        .then(crate::story::sandbox_ready("start", &[]))
        .starts(1)
        .answers(0)
        .checks(Stage::Iteration, "test", &["test"], 0)
        .imports("c1")
        .ends(&["M1.1", "M2.1"])
        .scores(0.0)
        .pushes("c1")
        .opens_pr();
    check(&story, &Step::Prove);
}

#[test]
fn budgets_end_the_run_before_the_next_call() {
    let spent =
        |cost: u64| Story::ready().starts(1).called(0, Answer::Actions { count: 0, response: String::new() }, cost);
    check(&spent(999).ends(&[]).scores(0.0), &Step::StartIteration { n: 2, profile: "cheap".to_owned() });
    check(&spent(1000).ends(&[]).scores(0.0), &budget(Limit::Cost));
    // In the middle of an iteration: no re-ask with an empty purse.
    let asked = Story::ready().starts(1).called(0, Answer::Invalid { error: "x".to_owned() }, 1000);
    check(&asked, &budget(Limit::Cost));
    let slow = Story::ready()
        .starts(1)
        .answers(0)
        .ends(&[])
        .after(60_000, Event::Log { level: ralph_core::event::Level::Info, text: String::new() });
    check(&slow.scores(0.0), &budget(Limit::Time));
    let mut worn = Story::ready();
    for n in 1..=3 {
        worn = worn.starts(n).answers(0).ends(&[]).scores(0.0);
    }
    check(&worn, &budget(Limit::Iterations));
    // What was committed is handed over before the run ends.
    check(&worn.imports("c1").pushes("c0").opens_pr(), &Step::Publish { why: "the run ends" });
}

#[test]
fn the_models_wishes() {
    let wish = |kind: &str| Story::ready().starts(1).answers(1).acts(0, kind, Outcome::Ok).ends(&[]).scores(0.0);
    let why = || "why".to_owned();
    check(&wish("pause"), &Step::Pause { reason: Reason::NeedsDecision { why: why() } });
    check(&wish("stop_failure"), &failed(Reason::GaveUp { why: why() }));
    // Claiming success is only a claim.
    check(&wish("stop_success"), &Step::StartIteration { n: 2, profile: "cheap".to_owned() });
    check(&wish("rotate"), &Step::StartIteration { n: 2, profile: "cheap".to_owned() });
}

#[test]
fn the_ladder() {
    let stuck = |n: u32| Story::ready().starts(n).answers(0).ends(&[]).scores(0.8);
    check(&stuck(1), &Step::Mitigate { n: 1, rung: Rung::Rotate });
    let again = stuck(1)
        .then(Event::MitigationApplied {
            n: 1,
            rung: Rung::Rotate,
            profile: "cheap".to_owned(),
            why: "w".to_owned(),
            cause: Cause::Gutter,
        })
        .starts(2)
        .answers(0)
        .ends(&[])
        .scores(0.8);
    check(&again, &Step::Mitigate { n: 2, rung: Rung::Fallback });
    let strong = again.then(Event::MitigationApplied {
        n: 2,
        rung: Rung::Fallback,
        profile: "strong".to_owned(),
        why: "w".to_owned(),
        cause: Cause::Gutter,
    });
    check(&strong, &Step::StartIteration { n: 3, profile: "strong".to_owned() });
    // Progress goes back to the default profile.
    let better = strong.starts(3).answers(0).ends(&["M1.1"]).scores(0.5);
    assert_eq!(better.state.profile, "cheap");
}

#[test]
fn resting_runs_rest() {
    let paused = Story::ready().then(Event::Paused { reason: Reason::Asked, next: String::new() });
    check(&paused, &Step::Rest);
    check(
        &paused.then(Event::Resumed { by: "x".to_owned() }),
        &Step::StartIteration { n: 1, profile: "cheap".to_owned() },
    );
}

#[test]
fn a_killed_run_forgets_nothing_it_was_about_to_do() {
    let killed = |story: Story| story.then(Event::Resumed { by: "x".to_owned() });
    let wish = |kind: &str| Story::ready().starts(1).answers(1).acts(0, kind, Outcome::Ok).ends(&[]).scores(0.0);
    let why = || "why".to_owned();
    check(&killed(wish("pause")), &Step::Pause { reason: Reason::NeedsDecision { why: why() } });
    check(&killed(wish("stop_failure")), &failed(Reason::GaveUp { why: why() }));
    let stuck = || Story::ready().starts(1).answers(0).ends(&[]).scores(0.8);
    check(&killed(stuck()), &Step::Mitigate { n: 1, rung: Rung::Rotate });
    let (rung, cause) = (Rung::Pause, Cause::Gutter);
    let waits = stuck().then(Event::MitigationApplied { n: 1, rung, profile: "cheap".to_owned(), why: why(), cause });
    check(&killed(waits), &Step::Pause { reason: Reason::Gutter });
    let stop = Finding { rule: "secret".to_owned(), path: String::new(), detail: why(), stop: true };
    let found = Event::CommitImported { n: 1, sha: String::new(), commits: 0, findings: vec![stop] };
    let found = Story::ready().starts(1).answers(0).then(found).ends(&[]).scores(0.0);
    check(&killed(found), &Step::Pause { reason: Reason::Findings { why: why() } });
    let baseline = Started { baseline: true, ..started() };
    let refused = Event::BaselineChecked { checks: Vec::new(), refused: Some(why()) };
    let vacuous = Story::with(baseline).then(crate::story::sandbox_ready("start", &[])).then(refused);
    check(&killed(vacuous), &failed(Reason::Baseline { why: why() }));
    // One proof has failed, and the others have not been told yet.
    let cut_off = done(1, &["M1.1", "M2.1"]).scores(0.1).imports("c1").pushes("c1").opens_pr();
    let cut_off = cut_off.checks(Stage::Proof, "test", &["test"], 0).checks(Stage::Proof, "p1", &["M1.1"], 1);
    check(&killed(cut_off), &Step::Prove);
    // Pushed, but the pull request does not say so yet.
    let pushed = done(1, &[]).scores(0.1).imports("c1").pushes("c1");
    let again = killed(pushed).opens_pr().starts(2).answers(0).imports("c2").ends(&["M1.1"]).scores(0.1).pushes("c2");
    check(&killed(again), &Step::Publish { why: "milestone complete" });
}

#[test]
fn a_person_who_resumes_has_seen_why_it_rested() {
    let rested = |story: Story, reason: Reason| {
        let paused = story.then(Event::Paused { reason, next: String::new() });
        paused.then(Event::Resumed { by: "x".to_owned() })
    };
    let wish = || Story::ready().starts(1).answers(1).acts(0, "pause", Outcome::Ok).ends(&[]).scores(0.0);
    let why = || "why".to_owned();
    let next = Step::StartIteration { n: 2, profile: "cheap".to_owned() };
    check(&rested(wish(), Reason::NeedsDecision { why: why() }), &next);
    // Ctrl-C is no answer to the model's question.
    let asks = Step::Pause { reason: Reason::NeedsDecision { why: why() } };
    check(&rested(wish(), Reason::Interrupted), &asks);
    let baseline = Started { baseline: true, ..started() };
    let refused = Event::BaselineChecked { checks: Vec::new(), refused: Some(why()) };
    let vacuous = Story::with(baseline)
        .then(crate::story::sandbox_ready("start", &[]))
        .then(refused)
        .then(Event::RunFinished {
            verdict: Verdict::Failed { reason: Reason::Baseline { why: why() } },
            next: String::new(),
        })
        .then(Event::Resumed { by: "x".to_owned() });
    // Nothing has changed: what showed nothing before shows nothing now.
    check(&vacuous, &failed(Reason::Baseline { why: why() }));
}

#[test]
fn the_base_is_asked_again_when_something_else_is_asked_of_it() {
    let refused = |verdict: BaselineVerdict| {
        let check = Baseline { proves: vec!["test".to_owned()], command: "test".to_owned(), verdict };
        let told = Event::BaselineChecked { checks: vec![check], refused: Some("why".to_owned()) };
        let reason = Reason::Baseline { why: "why".to_owned() };
        Story::with(Started { baseline: true, ..started() })
            .then(crate::story::sandbox_ready("start", &[]))
            .then(told)
            .then(Event::RunFinished { verdict: Verdict::Failed { reason }, next: String::new() })
    };
    let resumed = |story: Story| story.then(Event::Resumed { by: "x".to_owned() });
    let edited = |story: Story, proof: &str| {
        let text = format!(
            "---\ntask_id: t1\ntest_command: test\n---\n# T\n- [ ] M1.1 a\n  - verify: `p1`\n- [ ] M2.1 b\n  - verify: `{proof}`\n"
        );
        let control = Control::EditTask(TaskEdit { text, ..TaskEdit::default() });
        story.then(Event::ControlApplied { control, by: "x".to_owned() })
    };
    let refusal = failed(Reason::Baseline { why: "why".to_owned() });
    for (verdict, want) in [
        (BaselineVerdict::Vacuous, refusal),
        // A person may have installed it, or allowed it.
        (BaselineVerdict::MissingTool, Step::Baseline),
        (BaselineVerdict::DeniedHost, Step::Baseline),
    ] {
        assert_eq!(refused(verdict).state.pointless().is_some(), want != Step::Baseline, "{verdict:?}");
        check(&resumed(refused(verdict)), &want);
        check(&resumed(edited(refused(verdict), "p2")), &Step::Baseline);
    }
    let sound = || {
        let told = Event::BaselineChecked { checks: Vec::new(), refused: None };
        let ready =
            Story::with(Started { baseline: true, ..started() }).then(crate::story::sandbox_ready("start", &[]));
        ready.then(told).starts(1)
    };
    check(&edited(sound(), "p3"), &Step::Baseline);
    // Other words, the same proofs.
    check(&edited(sound(), "p2"), &Step::CallModel { n: 1, call: 0, reask: None });
    // Who wanted no red first at the start wants none later.
    check(&edited(Story::ready().starts(1), "p3"), &Step::CallModel { n: 1, call: 0, reask: None });
}

fn due(command: &str, proves: &[&str]) -> Due {
    Due { command: command.to_owned(), proves: proves.iter().map(|id| (*id).to_owned()).collect() }
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
    let on_claim = Started { test_every: TestEvery::Claim, ..started() };
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
        Story::ready().starts(1).answers(0).checks(Stage::Iteration, "p1", &["M1.1"], code).state.open.unwrap()
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
        let claimed = decide::claimed(&started(), &boxes, &milestones, success);
        assert_eq!((claimed.boxes, claimed.unknown), (want, unknown), "{boxes:?} {milestones:?}");
    }
    // Without headings a milestone is what its ids begin with.
    let mut bare = started();
    bare.boxes.iter_mut().for_each(|pinned| pinned.milestone = None);
    let claimed = decide::claimed(&bare, &[], &list(&["M2", "M"]), false);
    assert_eq!((claimed.boxes, claimed.unknown), (set(&["M2.1"]), list(&["M"])));
    // Where two boxes say the same, their words name neither.
    let mut twins = started();
    twins.boxes.iter_mut().for_each(|pinned| pinned.text = "it works".to_owned());
    let claimed = decide::claimed(&twins, &list(&["it works"]), &[], false);
    assert_eq!((claimed.boxes, claimed.unknown), (set(&[]), list(&["it works"])));
}
