//! A run that goes in circles, from its first verdict to a diagnosis and its proposals.

use ralph_core::control_request::{Control, TaskEdit};
use ralph_core::decide_next_step::RunStep;
use ralph_core::diagnosis::DiagnosisStep;
use ralph_core::event::{Event, EventLine, ModelCallOutcome, RunStart, RunStopReason};
use ralph_core::gutter::{
    DEFAULT_LADDER, FailureSignature, IterationSample, LadderRung, LoopScore, MitigationCause, explain, score,
};
use ralph_core::redact::MaskedText;
use ralph_core::task::{ApplyMode, DiagnoseSettings};

use crate::run_builder::{RunBuilder, started};

fn with(change: impl FnOnce(&mut RunStart)) -> RunBuilder {
    let mut begun = RunStart { ladder: DEFAULT_LADDER.to_vec(), ..started() };
    begun.budget.iterations = 20;
    begun.budget.cost = None;
    change(&mut begun);
    RunBuilder::with(begun).then(crate::run_builder::sandbox_ready("start", &[]))
}

fn ladder() -> RunBuilder {
    with(|_| ())
}

fn climbs(run: RunBuilder, rung: LadderRung, profile: &str) -> RunBuilder {
    let n = run.state.last.as_ref().map_or(0, |last| last.n);
    run.then(Event::MitigationApplied {
        n,
        rung,
        profile: profile.to_owned(),
        why: "w".into(),
        cause: MitigationCause::Gutter,
    })
}

fn iterates(run: RunBuilder, total: f64) -> RunBuilder {
    let n = run.state.next_iteration();
    run.starts(n).answers(0).ends(&[]).scores(total)
}

fn writes(run: RunBuilder, proposals: u32, guardrails: u32) -> RunBuilder {
    let n = run.state.last.as_ref().map_or(0, |last| last.n);
    run.then(Event::DiagnosisWritten {
        n,
        profile: "strong".to_owned(),
        proposals,
        guardrails,
        unasked: Vec::new(),
        failed: None,
    })
}

fn applied(run: RunBuilder, control: Control) -> RunBuilder {
    run.then(Event::ControlApplied { control, by: "x".to_owned(), id: None })
}

fn call(n: u32) -> RunStep {
    RunStep::Diagnose { n, doing: DiagnosisStep::Call { call: 0, reask: None } }
}

fn start(n: u32, profile: &str) -> RunStep {
    RunStep::StartIteration { n, profile: profile.to_owned() }
}

#[test]
fn every_rung_is_tried_in_turn() {
    let run = iterates(ladder(), 0.8);
    assert_eq!(run.next(), RunStep::Mitigate { n: 1, rung: LadderRung::Rotate });
    let run = iterates(climbs(run, LadderRung::Rotate, "cheap"), 0.8);
    assert_eq!(run.next(), RunStep::Mitigate { n: 2, rung: LadderRung::Fallback });
    let run = iterates(climbs(run, LadderRung::Fallback, "strong"), 0.8);
    // There is no doctor, so another of the run's profiles is called.
    assert_eq!(run.next(), RunStep::Mitigate { n: 3, rung: LadderRung::Diagnose });
    let run = climbs(run, LadderRung::Diagnose, "strong");
    assert_eq!(run.next(), call(3));
    let run = run.called(0, ModelCallOutcome::Invalid { error: "no".into() }, 5);
    assert_eq!(
        run.next(),
        RunStep::Diagnose { n: 3, doing: DiagnosisStep::Call { call: 1, reask: Some("no".to_owned()) } }
    );
    let run = run.called(1, ModelCallOutcome::Diagnosis { proposals: 2, response: String::new() }, 5);
    assert_eq!(run.next(), RunStep::Diagnose { n: 3, doing: DiagnosisStep::Write { call: 1 } });
    let run = writes(run, 2, 1);
    assert_eq!(run.next(), start(4, "strong"));
    assert_eq!(run.state.rotate_because.as_deref(), Some("w"));
    let run = iterates(run, 0.8);
    assert_eq!(run.next(), RunStep::Mitigate { n: 4, rung: LadderRung::Pause });
    let run = climbs(run, LadderRung::Pause, "strong");
    assert_eq!(run.next(), RunStep::Pause { reason: RunStopReason::Gutter });
    assert!(run.state.next_for(&RunStopReason::Gutter).starts_with("ralph apply r1 1 "));
    assert!(run.state.next_for(&RunStopReason::Asked).starts_with("ralph resume r1"));
    let calls: u64 = run.state.spent.tokens;
    assert_eq!(calls, 6 * 15, "the doctor's calls are paid for like any other");
}

#[test]
fn only_progress_resets_the_ladder() {
    let stuck = || {
        climbs(
            iterates(climbs(iterates(ladder(), 0.8), LadderRung::Rotate, "cheap"), 0.8),
            LadderRung::Fallback,
            "strong",
        )
    };
    // A change that leads nowhere leaves the ladder where it is.
    let small_change = iterates(stuck(), 0.5);
    assert_eq!((small_change.state.climb.verdicts, small_change.state.profile.as_str()), (2, "strong"));
    assert_eq!(iterates(small_change, 0.8).next(), RunStep::Mitigate { n: 4, rung: LadderRung::Diagnose });
    let boxed = stuck().starts(3).answers(0).ends(&["M1.1"]).scores(0.5);
    assert_eq!((boxed.state.climb.verdicts, boxed.state.profile.as_str()), (0, "cheap"));
    let fewer = stuck().starts(3).answers(0).ends(&[]);
    let veto = Some("2 tests fail, 3 did before".to_owned());
    let fewer = fewer.then(Event::GutterScored { n: 3, score: LoopScore { total: 0.5, veto, ..LoopScore::default() } });
    assert_eq!((fewer.state.climb.verdicts, fewer.state.profile.as_str()), (0, "cheap"));
}

#[test]
fn a_chosen_profile_is_kept() {
    let chosen = |name: &str| {
        let chosen = applied(iterates(ladder(), 0.0), Control::SetProfile { name: name.to_owned() });
        assert_eq!(chosen.state.profile, name);
        chosen
    };
    // Progress is no reason to undo the user's choice.
    let boxed = chosen("strong").starts(2).answers(0).ends(&["M1.1"]).scores(0.0);
    assert_eq!(boxed.next(), start(3, "strong"));
    // The ladder may leave it, and comes back to it.
    let left = climbs(iterates(chosen("cheap"), 0.8), LadderRung::Fallback, "strong");
    assert_eq!(left.next(), start(3, "strong"));
    let left = climbs(iterates(chosen("strong"), 0.8), LadderRung::Fallback, "cheap");
    assert_eq!(left.next(), start(3, "cheap"));
    assert_eq!(left.starts(3).answers(0).ends(&["M1.1"]).scores(0.0).next(), start(4, "strong"));
    // The last choice counts.
    let again = applied(chosen("strong"), Control::SetProfile { name: "cheap".to_owned() });
    assert_eq!(again.starts(2).answers(0).ends(&["M1.1"]).scores(0.0).next(), start(3, "cheap"));
}

#[test]
fn an_unreachable_provider_is_retried_in_the_next_iteration() {
    let older = r#"{"seq":4,"at":"1970-01-01T00:00:00.03Z","type":"mitigation-applied","n":1,"rung":"fallback","profile":"strong","why":"w"}"#;
    let newer = older.replace(r#""why":"w""#, r#""why":"w","cause":"provider""#);
    for text in [older, &newer] {
        let line = EventLine::parse(text).unwrap();
        assert_eq!(line.to_json(), text);
        let run = ladder().starts(1).then(line.event);
        assert_eq!(run.state.open.as_ref().unwrap().profile, "strong");
        let run = run.answers(0).ends(&[]).scores(0.8);
        // The switch of profiles is not a rung: the ladder is still complete.
        assert_eq!(run.state.profile, "cheap");
        assert_eq!(run.next(), RunStep::Mitigate { n: 1, rung: LadderRung::Rotate });
        assert_eq!(explain(run.lines.clone()).unwrap()[0].rung, None);
        assert_eq!(climbs(run, LadderRung::Rotate, "cheap").next(), start(2, "cheap"));
    }
}

#[test]
fn diagnoses_are_periodic_or_on_request() {
    let every = |every: u32| with(|begun| begun.diagnose = DiagnoseSettings { apply: ApplyMode::Approve, every });
    let run = iterates(every(2), 0.0);
    assert_eq!(run.next(), start(2, "cheap"));
    let run = iterates(run, 0.0);
    assert_eq!(run.next(), call(2));
    let run = writes(run, 1, 1);
    assert_eq!(run.next(), start(3, "cheap"));
    let asked = applied(iterates(run, 0.0), Control::Diagnose);
    assert_eq!(asked.next(), call(3));
    // In the middle of an iteration the diagnosis waits.
    let within = applied(ladder().starts(1), Control::Diagnose);
    assert_eq!(within.next(), RunStep::CallModel { n: 1, call: 0, reask: None });
    assert_eq!(within.answers(0).ends(&[]).scores(0.0).next(), call(1));
    // A spent budget pays for no diagnosis.
    let spent = applied(iterates(with(|begun| begun.budget.iterations = 1), 0.0), Control::Diagnose);
    assert!(matches!(spent.next(), RunStep::Finish { .. }));
}

#[test]
fn the_newest_proposals_come_first() {
    let run = writes(iterates(writes(iterates(ladder(), 0.0), 2, 1), 0.0), 1, 1);
    assert_eq!(run.state.diagnoses.open_proposals().collect::<Vec<_>>(), [3, 1, 2]);
    assert!(run.state.next_for(&RunStopReason::Gutter).starts_with("ralph apply r1 3 "));
    let none = writes(applied(run, Control::ApplyProposal { number: 3 }), 0, 0);
    assert!(none.state.next_for(&RunStopReason::Gutter).starts_with("ralph apply r1 1 "));
}

#[test]
fn proposals_applied_without_approval() {
    let auto = with(|begun| begun.diagnose = DiagnoseSettings { apply: ApplyMode::Auto, every: 0 });
    let run = writes(applied(iterates(auto, 0.0), Control::Diagnose), 3, 2);
    assert_eq!(run.next(), RunStep::Apply { number: 1 });
    let run = applied(run, Control::ApplyProposal { number: 1 });
    assert_eq!(run.next(), RunStep::Apply { number: 2 });
    let run = applied(run, Control::ApplyProposal { number: 2 });
    assert_eq!(run.next(), start(2, "cheap"));
    assert_eq!(run.state.diagnoses.open_proposals().collect::<Vec<_>>(), [3]);
    // Newer events name the proposals that need no approval; older runs did not.
    let written = |apply: ApplyMode| {
        let run = with(|begun| begun.diagnose = DiagnoseSettings { apply, every: 0 });
        let unasked = vec![1, 3];
        let profile = "strong".to_owned();
        let event = Event::DiagnosisWritten { n: 1, profile, proposals: 3, guardrails: 1, unasked, failed: None };
        applied(iterates(run, 0.0), Control::Diagnose).then(event).state.diagnoses.due.into_iter().collect::<Vec<_>>()
    };
    assert_eq!((written(ApplyMode::Auto), written(ApplyMode::Approve)), (vec![1, 3], Vec::new()));
}

#[test]
fn an_edited_task_applies_from_its_event_on() {
    let text = "---\ntask_id: t1\ntest_command: test\nprotected_paths: [tests/]\n---\n# Other title\n\
        - [ ] M1.1 a\n  - verify: `p1` `more`\n- [ ] M2.1 b\n  - verify: `p2`\n- [ ] M3.1 c\n  - verify: `p3`\n";
    let done = ladder().starts(1).answers(0).ends(&["M1.1", "M2.1"]).scores(0.0);
    let edit =
        TaskEdit { text: text.to_owned(), proposal: Some(2), proof_files: vec!["f".to_owned()], ..TaskEdit::default() };
    let run = applied(writes(done, 2, 1), Control::EditTask(edit));
    let state = &run.state;
    assert_eq!((state.task_revision, state.started.title.as_str()), (2, "Other title"));
    assert_eq!(state.started.boxes.iter().map(|one| one.id.as_str()).collect::<Vec<_>>(), ["M1.1", "M2.1", "M3.1"]);
    assert_eq!(state.started.proof_files, ["f"]);
    // A box whose proof has changed is proved again.
    let names = |set: &std::collections::BTreeSet<String>| set.iter().cloned().collect::<Vec<_>>();
    assert_eq!((names(&state.verified), names(&state.reclaim)), (vec!["M2.1".to_owned()], vec!["M1.1".to_owned()]));
    assert_eq!(state.diagnoses.open_proposals().collect::<Vec<_>>(), [1], "its proposal is carried out");
    // A text that is not a task changes nothing.
    let none = applied(run, Control::EditTask(TaskEdit { text: "no task".to_owned(), ..TaskEdit::default() }));
    assert_eq!(none.state.task_revision, 2);
}

#[test]
fn every_score_can_be_explained() {
    let mut run = ladder();
    let failures = vec![FailureSignature::of("make", 2, "broke")];
    for n in 1..=3 {
        let sample = IterationSample { n, failures: failures.clone(), ..IterationSample::default() };
        run = run.starts(n).answers(0).then(Event::IterationFinished {
            n,
            outcome: ralph_core::event::IterationOutcome::NoProgress,
            head: String::new(),
            summary: MaskedText::default(),
            sample,
            verified: Vec::new(),
            broken: Vec::new(),
        });
        let window: Vec<IterationSample> = run.state.window.iter().cloned().collect();
        run = run.then(Event::GutterScored { n, score: score(&window, 1) });
    }
    let lines: Vec<EventLine> = climbs(run, LadderRung::Rotate, "cheap").lines;
    let explained = explain(lines).unwrap();
    let rows: Vec<(u32, String, bool, u32, Option<LadderRung>)> = explained
        .iter()
        .map(|one| {
            let counts = one.parts.iter().filter(|part| part.counts).map(|part| part.letter).collect();
            (one.n, counts, one.gutter, one.streak, one.rung)
        })
        .collect();
    let want = [(1, "", false, 0, None), (2, "", false, 0, None), (3, "AB", true, 1, Some(LadderRung::Rotate))];
    assert_eq!(rows, want.map(|(n, counts, gutter, streak, rung)| (n, counts.to_owned(), gutter, streak, rung)));
    let why: Vec<&str> = explained[0].parts.iter().map(|part| part.why.as_str()).collect();
    assert_eq!(
        why,
        [
            "`make` failed with exit code 2 in iteration 1, and not like that before",
            "nothing changed in the last iteration",
            "no file went back and forth between the same two contents",
        ]
    );
    assert!((explained[2].sum - explained[2].score.total).abs() < 1e-9);
}
