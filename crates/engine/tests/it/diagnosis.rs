//! Tests runs that go in circles: every rung of the ladder, a diagnosis that is paid for and survives kills, and its
//! proposals.

use std::time::Duration;

use ralph_core::control_request::{Control, TaskEdit};
use ralph_core::env_vars::Env;
use ralph_core::event::{Event, EventLine, ModelCallOutcome, RunStopReason};
use ralph_core::gutter::LadderRung;
use ralph_core::money::MicroUsd;
use ralph_core::run::{RunState, RunStatus};
use ralph_engine::Error;
use ralph_engine::control::send;
use ralph_engine::host_environment::HostContext;
use ralph_engine::run::{
    BudgetRaise, CONVERSATION_FILE, KeepSandbox, RecreateSandbox, RunSpec, StopSignals, begin, read_proposals, resume,
};
use ralph_engine::store::{AnnouncePhase, EventObserver};
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::killable_run::{KillPoint, KillableRun, PushTarget, RunnerEnding};

struct DiagnosisTestObserver;

impl EventObserver for DiagnosisTestObserver {
    fn on_event(&self, _: AnnouncePhase, _: &EventLine) {}
}

const TASK: &str = r#"---
task_id: stuck-001
test_command: "sh tests/all.sh"
max_iterations: 12
max_wall_time_minutes: 10
max_cost_usd_estimate: 1
protected_paths: ["tests/"]
---

# Open the door

The door opens when the key is turned.

- [ ] M1.1 The key is turned
  - verify: `sh tests/key.sh`
- [ ] M1.2 The door is open
  - verify: `sh tests/door.sh`
"#;

const FILES: [(&str, &str); 4] = [
    ("tests/key.sh", "grep -q turned key.txt || { echo 'the key is not turned' >&2; exit 1; }\n"),
    ("tests/door.sh", "grep -q open door.txt || { echo 'the door is shut' >&2; exit 1; }\n"),
    ("tests/all.sh", "sh tests/key.sh && sh tests/door.sh\n"),
    ("door.txt", "shut\n"),
];

fn reply(summary: &str, actions: &[Value], claimed: &[&str]) -> Value {
    json!({"usage": {"input": 1000, "output": 100},
        "json": {"summary": summary, "actions": actions, "claims": {"checkboxes_checked": claimed}}})
}

/// The step that goes in circles: it runs the failing check again and changes nothing.
fn stuck_reply() -> Value {
    reply("Try the door again.", &[json!({"type": "run", "command": "sh tests/door.sh"})], &[])
}

/// The step that solves the task.
fn solving_reply() -> Value {
    let actions = [
        json!({"type": "write", "path": "key.txt", "content": "turned\n"}),
        json!({"type": "write", "path": "door.txt", "content": "open\n"}),
        json!({"type": "write", "path": "steps.txt", "content": "key, door\n"}),
        json!({"type": "commit", "message": "turn the key, open the door"}),
    ];
    reply("Turn the key first.", &actions, &["M1.1", "M1.2"])
}

fn when(mut reply: Value, when: &Value) -> Value {
    reply["when"] = when.clone();
    reply
}

fn script(replies: &[Value]) -> String {
    let mut text = json!({"format": 1}).to_string();
    for reply in replies {
        text.push('\n');
        text.push_str(&reply.to_string());
    }
    text
}

/// A model that repeats itself until a prompt mentions the key.
fn stuck_script() -> String {
    let mut stuck = stuck_reply();
    stuck["repeat"] = true.into();
    script(&[stuck, when(solving_reply(), &json!({"prompt_contains": "turn the key first"}))])
}

fn diagnosis() -> Value {
    json!({
        "patterns": ["tests/door.sh is run again and again without a change"],
        "causes": ["nobody has turned the key"],
        "guardrails": [{"trigger": "the door is shut", "instruction": "turn the key first: write turned into key.txt",
            "evidence": "tests/door.sh failed three times"}],
        "task_diff": "--- a/ralph_task.md\n+++ b/ralph_task.md\n@@ -11,3 +11,3 @@\n # Open the door\n \n-The door opens when the key is turned.\n+The door opens when the key is turned: turn the key first.\n",
        "profile": {"name": "fallback", "why": "it reads the task"},
    })
}

/// A diagnosis model that always gives this answer.
fn diagnosis_script(says: &Value) -> String {
    script(&[json!({"usage": {"input": 2000, "output": 200}, "json": says, "repeat": true})])
}

fn case(task: &str, model: &str) -> KillableRun {
    KillableRun::with(&FILES, task, model, PushTarget::Here)
}

async fn host(case: &KillableRun) -> HostContext {
    let env = [("PATH", std::env::var("PATH").unwrap()), ("HOME", case.home().state_dir().display().to_string())];
    HostContext::open(case.home(), Env::new(env.map(|(name, value)| (name.to_owned(), value)))).await.unwrap()
}

async fn run(case: &KillableRun, change: impl FnOnce(&mut RunSpec)) -> RunState {
    let host = host(case).await;
    let mut request = case.run_request();
    change(&mut request);
    let mut runner =
        begin(&host, request, Box::new(DiagnosisTestObserver), StopSignals::default(), KeepSandbox::Always)
            .await
            .unwrap()
            .runner;
    timeout(Duration::from_mins(2), runner.drive()).await.expect("the run rests").unwrap().clone()
}

async fn go_on(case: &KillableRun) -> RunState {
    let host = host(case).await;
    let folder = case.folder().unwrap();
    let (raise, quiet) = (BudgetRaise::default(), Box::new(DiagnosisTestObserver));
    let runner =
        resume(&host, folder, raise, RecreateSandbox::No, quiet, StopSignals::default(), KeepSandbox::Always).await;
    timeout(Duration::from_mins(2), runner.unwrap().drive()).await.expect("the run rests").unwrap().clone()
}

async fn apply_control(case: &KillableRun, control: Control) -> Result<RunState, String> {
    match send(&host(case).await, &case.folder().unwrap(), &control, "a person").await {
        Ok(_) => Ok(case.state().unwrap()),
        Err(Error::ControlRefused { why, .. }) => Err(why),
        Err(error) => panic!("{error}"),
    }
}

fn rungs(case: &KillableRun) -> Vec<(u32, LadderRung, String)> {
    let rung = |line: EventLine| match line.event {
        Event::MitigationApplied { n, rung, profile, .. } => Some((n, rung, profile)),
        _ => None,
    };
    case.lines().into_iter().filter_map(rung).collect()
}

fn mirror(case: &KillableRun, name: &str) -> String {
    std::fs::read_to_string(case.folder().unwrap().mirror(name)).unwrap_or_default()
}

/// Returns the outcomes and costs of the diagnosis calls.
fn diagnosis_calls(case: &KillableRun) -> Vec<(&'static str, MicroUsd)> {
    let call = |line: EventLine| match line.event {
        Event::ModelCalled { profile, answer, cost, .. } if profile == "doctor" => Some((
            match answer {
                ModelCallOutcome::Diagnosis { .. } => "diagnosis",
                ModelCallOutcome::Invalid { .. } => "invalid",
                ModelCallOutcome::Through { .. } => "through",
                ModelCallOutcome::Lost => "lost",
                ModelCallOutcome::Actions { .. } => "actions",
            },
            cost,
        )),
        _ => None,
    };
    case.lines().into_iter().filter_map(call).collect()
}

fn names(state: &RunState) -> (String, String) {
    match &state.status {
        RunStatus::Paused { reason, next } => (format!("paused: {}", reason.describe()), next.clone()),
        RunStatus::Failed { reason, next } => (format!("failed: {}", reason.describe()), next.clone()),
        status => (status.word().to_owned(), String::new()),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_rung_is_climbed_and_the_diagnosis_ends_the_run() {
    let case = case(TASK, &stuck_script());
    case.helper("fallback", &stuck_script());
    case.helper("doctor", &diagnosis_script(&diagnosis()));
    let state = run(&case, |_| ()).await;
    let own = |n: u32, rung: LadderRung, profile: &str| (n, rung, profile.to_owned());
    let want = [
        own(3, LadderRung::Rotate, "scripted"),
        own(4, LadderRung::Fallback, "fallback"),
        own(5, LadderRung::Diagnose, "fallback"),
        own(6, LadderRung::Pause, "fallback"),
    ];
    assert_eq!(rungs(&case), want, "{}", case.event_text());
    let run = state.id().to_owned();
    assert_eq!(
        names(&state),
        (
            "paused: gutter: it went in circles".to_owned(),
            format!(
                "ralph apply {run} 1 (what the diagnosis proposes; ralph apply {run} lists all), then ralph resume {run}"
            )
        )
    );
    assert_eq!(state.exit().code(), 5);
    assert_eq!(diagnosis_calls(&case), [("diagnosis", MicroUsd(9000))]);
    assert_eq!(state.spent.cost, MicroUsd(6 * 4500 + 9000), "the diagnosis is paid from the same budget");
    // Every rung is a line, and so is the diagnosis.
    let activity = mirror(&case, "activity.log");
    for line in [
        "iteration 3: gutter, rotate with profile scripted",
        "iteration 4: gutter, fallback with profile fallback",
        "iteration 5: gutter, diagnose with profile fallback",
        "iteration 5: diagnosis 1 by doctor, 3 proposals",
        "iteration 6: gutter, pause with profile fallback",
    ] {
        assert_eq!(activity.matches(line).count(), 1, "{line}\n{activity}");
    }
    let report = mirror(&case, "diagnostics.md");
    assert!(report.contains("## Diagnosis 1, after iteration 5, by doctor"), "{report}");
    // The fresh session gets the reason.
    let prompt = std::fs::read_to_string(case.folder().unwrap().iteration(4).join("prompt.md")).unwrap();
    assert!(prompt.contains("`sh tests/door.sh` failed with exit code 1 and the same error in 3 of"), "{prompt}");
    // The diagnosis prompt shows the failures, fenced.
    let asked = std::fs::read_to_string(case.folder().unwrap().path().join("diagnoses/1/prompt.md")).unwrap();
    assert!(asked.contains("[ralph:begin failures ") && asked.contains("the door is shut"), "{asked}");

    // Resumed as it is, the run goes in circles again; with the guardrail it finishes and returns to its own profile.
    let state = apply_control(&case, Control::ApplyProposal { number: 1 }).await.unwrap();
    assert_eq!(state.diagnoses.applied.iter().copied().collect::<Vec<_>>(), [1]);
    assert_eq!(mirror(&case, "guardrails.md").matches("### sign: proposal 1 of a diagnosis").count(), 1);
    assert_eq!(
        apply_control(&case, Control::ApplyProposal { number: 1 }).await,
        Err("proposal 1 was applied before".to_owned())
    );
    let state = go_on(&case).await;
    assert_eq!(state.status, RunStatus::Succeeded, "{}", case.event_text());
    assert_eq!((state.profile.as_str(), state.climb.verdicts), ("scripted", 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn safe_proposals_are_applied_automatically_if_the_task_allows() {
    let task = TASK.replace("max_iterations: 12", "max_iterations: 12\ndiagnose: {apply: auto}");
    let case = case(&task, &stuck_script());
    case.helper("doctor", &diagnosis_script(&diagnosis()));
    let state = run(&case, |_| ()).await;
    assert_eq!(state.status, RunStatus::Succeeded, "{}", case.event_text());
    let climbed: Vec<LadderRung> = rungs(&case).into_iter().map(|(_, rung, _)| rung).collect();
    assert_eq!(climbed, [LadderRung::Rotate, LadderRung::Diagnose]);
    // The guardrail and the clearer task, with the old text kept.
    assert_eq!(state.diagnoses.open_proposals().collect::<Vec<_>>(), Vec::<u32>::new());
    let folder = case.folder().unwrap();
    let text = |revision: u32| std::fs::read_to_string(folder.task_revision(revision)).unwrap();
    assert_eq!((state.task_revision, text(1)), (2, task.clone()));
    assert_eq!(text(2), task.replace("key is turned.", "key is turned: turn the key first."));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proposals_that_weaken_a_proof_wait_for_the_user() {
    let task = TASK.replace("max_iterations: 12", "max_iterations: 12\ndiagnose: {apply: auto}");
    let case = case(&task, &stuck_script());
    let mut weaker = diagnosis();
    weaker["task_diff"] = "@@ -1 +1 @@\n-  - verify: `sh tests/door.sh`\n+  - verify: `true`\n".into();
    case.helper("doctor", &diagnosis_script(&weaker));
    let state = run(&case, |_| ()).await;
    assert_eq!(state.status, RunStatus::Succeeded, "{}", case.event_text());
    assert_eq!((state.task_revision, state.diagnoses.open_proposals().collect::<Vec<_>>()), (1, vec![2]));
    let why = "proposal 2 waits for a person: it would take the proof `sh tests/door.sh` from box `M1.2`";
    let is_reported = |line: &EventLine| matches!(&line.event, Event::Log { text, .. } if text == why);
    assert_eq!(case.lines().iter().filter(|line| is_reported(line)).count(), 1, "{}", case.event_text());
}

/// The diagnosis is part of the conversation: the whole run replays from one file, byte for byte.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_with_a_diagnosis_replays() {
    let task = TASK.replace("max_iterations: 12", "max_iterations: 12\ndiagnose: {apply: auto}");
    let first = case(&task, &stuck_script());
    let odd = json!({"text": "It is complicated.", "usage": {"input": 10, "output": 1}});
    let says = json!({"json": diagnosis(), "usage": {"input": 2000, "output": 200}});
    first.helper("doctor", &script(&[when(odd, &json!({"call": 0})), when(says, &json!({"call": 1}))]));
    let state = run(&first, |_| ()).await;
    assert_eq!(state.status, RunStatus::Succeeded, "{}", first.event_text());
    let conversation =
        |case: &KillableRun| std::fs::read_to_string(case.folder().unwrap().path().join(CONVERSATION_FILE)).unwrap();
    let recorded = conversation(&first);
    assert_eq!(recorded.matches("\"diagnosis\":1").count(), 2, "{recorded}");

    let second = case(&task, &recorded);
    second.helper("doctor", &recorded);
    let again = run(&second, |_| ()).await;
    assert_eq!(again.status, RunStatus::Succeeded, "{}", second.event_text());
    assert_eq!((diagnosis_calls(&second), rungs(&second)), (diagnosis_calls(&first), rungs(&first)));
    assert_eq!(
        (conversation(&second), mirror(&second, "diagnostics.md")),
        (recorded, mirror(&first, "diagnostics.md"))
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_diagnosis_every_n_iterations() {
    let task = TASK.replace("max_iterations: 12", "max_iterations: 5\ndiagnose: {every: 2}");
    let busy = reply("Paint the door.", &[json!({"type": "run", "command": "date +%N >> paint.txt"})], &[]);
    let mut busy = busy;
    busy["repeat"] = true.into();
    let case = case(&task, &script(&[busy]));
    case.helper("doctor", &diagnosis_script(&diagnosis()));
    let state = run(&case, |request| request.budget.iterations = 5).await;
    assert_eq!(names(&state).0, "failed: budget: iterations");
    let written: Vec<u32> = case
        .lines()
        .iter()
        .filter_map(|line| match line.event {
            Event::DiagnosisWritten { n, .. } => Some(n),
            _ => None,
        })
        .collect();
    assert_eq!(written, [2, 4]);
    assert_eq!(state.diagnoses.proposals, 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_invalid_diagnosis_is_retried_once() {
    let case = case(TASK, &stuck_script());
    case.helper(
        "doctor",
        &script(&[
            when(json!({"text": "It is complicated.", "usage": {"input": 10, "output": 1}}), &json!({"call": 0})),
            when(json!({"json": {"patterns": []}, "usage": {"input": 10, "output": 1}}), &json!({"call": 1})),
        ]),
    );
    let state = run(&case, |_| ()).await;
    assert_eq!(diagnosis_calls(&case).iter().map(|(answer, _)| *answer).collect::<Vec<_>>(), ["invalid", "invalid"]);
    let (word, next) = names(&state);
    assert_eq!(word, "paused: gutter: it went in circles");
    assert!(next.starts_with("ralph guardrail "), "{next}");
    assert!(mirror(&case, "diagnostics.md").contains("No diagnosis: the doctor gave no valid answer"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unaffordable_or_failed_diagnosis_does_not_end_the_run() {
    for (doctor, why) in [
        (script(&[json!({"fault": {"status": 401}, "repeat": true})]), "No diagnosis: "),
        (
            script(&[json!({"usage": {"input": 1, "output": 1}, "json": diagnosis(), "repeat": true})]),
            "No diagnosis: what is left of the cost budget does not pay for it",
        ),
    ] {
        let case = case(TASK, &stuck_script());
        case.helper("doctor", &doctor);
        let expensive = why.contains("budget");
        let state = run(&case, |request| {
            if expensive && let Some(doctor) = &mut request.profiles.doctor {
                doctor.price = Some(ralph_core::price::Price::per_mtok_usd(900_000.0, 900_000.0, None));
            }
        })
        .await;
        assert_eq!(names(&state).0, "paused: gutter: it went in circles", "{}", case.event_text());
        assert!(mirror(&case, "diagnostics.md").contains(why), "{}", mirror(&case, "diagnostics.md"));
        assert!(state.spent.cost < MicroUsd(1_000_000));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_rung_left_the_run_fails() {
    let case = case(TASK, &stuck_script());
    let state = run(&case, |request| {
        request.ladder = vec![LadderRung::Rotate];
        request.budget.consecutive_gutter = 3;
    })
    .await;
    assert_eq!(names(&state).0, "failed: gutter: it went in circles");
    assert_eq!(rungs(&case).len(), 2);
    assert_eq!(state.exit().code(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn resuming_a_stuck_run_in_vain_fails_it() {
    let case = case(TASK, &stuck_script());
    let climbed = || rungs(&case).into_iter().map(|(_, rung, _)| rung.as_str()).collect::<Vec<_>>().join(" ");
    let state = run(&case, |request| {
        request.budget.iterations = 40;
        request.budget.consecutive_gutter = 2;
    })
    .await;
    assert_eq!(names(&state).0, "paused: gutter: it went in circles");
    assert_eq!(climbed(), "rotate pause");
    let state = go_on(&case).await;
    assert_eq!(names(&state).0, "failed: gutter: it went in circles");
    assert_eq!(climbed(), "rotate pause");
    // The user may resume it all the same.
    let state = go_on(&case).await;
    assert_eq!(names(&state).0, "paused: gutter: it went in circles");
    assert_eq!(climbed(), "rotate pause rotate pause");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn controls_of_a_resting_run() {
    let pause = reply("A question.", &[json!({"type": "pause", "reason": "which key?"})], &[]);
    let case = case(TASK, &script(&[pause, solving_reply()]));
    case.helper("doctor", &diagnosis_script(&diagnosis()));
    case.helper("fallback", &stuck_script());
    let state = run(&case, |_| ()).await;
    assert_eq!(names(&state).0, "paused: needs a decision: which key?");
    let none = "no diagnosis has proposed anything yet; ralph diagnose";
    assert!(apply_control(&case, Control::ApplyProposal { number: 1 }).await.unwrap_err().starts_with(none));

    let state = apply_control(&case, Control::Diagnose).await.unwrap();
    assert_eq!((state.diagnoses.written, state.diagnoses.proposals), (1, 3));
    assert_eq!(state.spent.cost, MicroUsd(4500 + 9000));
    assert!(
        matches!(state.status, RunStatus::Paused { reason: RunStopReason::NeedsDecision { .. }, .. }),
        "it still rests"
    );
    assert_eq!(read_proposals(&case.folder().unwrap()).unwrap().proposals.len(), 3);
    let why = apply_control(&case, Control::ApplyProposal { number: 9 }).await.unwrap_err();
    assert_eq!(why, "there is no proposal 9; they are numbered 1 to 3");

    // The task: a new revision, the old one kept, and the sandbox has it.
    let state = apply_control(&case, Control::ApplyProposal { number: 2 }).await.unwrap();
    let folder = case.folder().unwrap();
    assert_eq!(state.task_revision, 2);
    assert_eq!(std::fs::read_to_string(folder.task_path()).unwrap(), TASK);
    let revised = std::fs::read_to_string(folder.task_revision(2)).unwrap();
    assert_eq!(revised, TASK.replace("is turned.", "is turned: turn the key first."));
    let sandbox = &state.workplace.as_ref().unwrap().sandbox;
    let inside = case.home().sandboxes_dir().join(sandbox).join("workspace/ralph_task.md");
    assert_eq!(std::fs::read_to_string(inside).unwrap(), revised);
    assert!(apply_control(&case, Control::ApplyProposal { number: 2 }).await.is_err(), "never twice");

    // The profile.
    let state = apply_control(&case, Control::ApplyProposal { number: 3 }).await.unwrap();
    assert_eq!(state.profile, "fallback");
    let why = apply_control(&case, Control::SetProfile { name: "nobody".to_owned() }).await.unwrap_err();
    assert_eq!(why, "the run knows the profiles scripted, fallback, doctor");
    let state = apply_control(&case, Control::SetProfile { name: "scripted".to_owned() }).await.unwrap();
    assert_eq!(state.profile, "scripted");
    let state = go_on(&case).await;
    assert_eq!(state.status, RunStatus::Succeeded, "{}", case.event_text());
    let pushed = case.outcome().branch.unwrap().task;
    assert!(pushed.contains("turn the key first") && pushed.matches("[x]").count() == 2, "{pushed}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_diagnosis_call_is_charged_at_its_worst_case() {
    let pause = reply("A question.", &[json!({"type": "pause", "reason": "?"})], &[]);
    let case = case(TASK, &script(&[pause]));
    let says = json!({"usage": {"input": 2000, "output": 200}, "json": diagnosis(), "when": {"call": 1}});
    case.helper("doctor", &script(&[says]));
    run(&case, |_| ()).await;
    // What a process leaves behind that dies during the diagnosis call.
    let diagnosis_dir = case.folder().unwrap().path().join("diagnoses/1");
    std::fs::create_dir_all(&diagnosis_dir).unwrap();
    let worst = json!({"model": "dear", "usage": {"input": 5000, "output": 1000}, "cost": 30_000});
    std::fs::write(diagnosis_dir.join("call-0.reserved.json"), worst.to_string()).unwrap();
    let state = apply_control(&case, Control::Diagnose).await.unwrap();
    assert_eq!(diagnosis_calls(&case), [("lost", MicroUsd(30_000)), ("diagnosis", MicroUsd(9000))]);
    assert_eq!((state.spent.cost, state.diagnoses.proposals), (MicroUsd(4500 + 30_000 + 9000), 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_diagnosis_weakens_a_proof() {
    let pause = reply("A question.", &[json!({"type": "pause", "reason": "?"})], &[]);
    for (diff, want) in [
        (
            "@@ -1 +1 @@\n-  - verify: `sh tests/door.sh`\n+  - verify: `true`\n",
            "it would take the proof `sh tests/door.sh` from box `M1.2`",
        ),
        (
            "@@ -1,2 +0,0 @@\n-- [ ] M1.2 The door is open\n-  - verify: `sh tests/door.sh`\n",
            "it would remove box `M1.2`",
        ),
        (
            "@@ -1 +1 @@\n-test_command: \"sh tests/all.sh\"\n+test_command: \"true\"\n",
            "it would change `test_command`",
        ),
        (
            "@@ -1 +1 @@\n-max_cost_usd_estimate: 1\n+max_cost_usd_estimate: 99\n",
            "it would change `max_cost_usd_estimate`",
        ),
        ("@@ -1 +1,2 @@\n task_id: stuck-001\n+sandbox_network: {policy: open}\n", "it would change `sandbox_network`"),
        ("@@ -1 +1 @@\n-nowhere\n+here\n", "its diff does not fit the task as it is now"),
    ] {
        let case = case(TASK, &script(std::slice::from_ref(&pause)));
        let mut says = diagnosis();
        says["task_diff"] = diff.into();
        case.helper("doctor", &diagnosis_script(&says));
        run(&case, |_| ()).await;
        apply_control(&case, Control::Diagnose).await.unwrap();
        let why = apply_control(&case, Control::ApplyProposal { number: 2 }).await.unwrap_err();
        assert!(why.starts_with(want), "{why}");
        let state = case.state().unwrap();
        assert_eq!((state.task_revision, state.diagnoses.applied.len()), (1, 0));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_user_may_edit_the_task() {
    let pause = reply("A question.", &[json!({"type": "pause", "reason": "?"})], &[]);
    let key = [
        json!({"type": "write", "path": "key.txt", "content": "turned\n"}),
        json!({"type": "commit", "message": "turn the key"}),
    ];
    let case = case(TASK, &script(&[pause, reply("The key.", &key, &["M1.1"])]));
    run(&case, |request| request.baseline = false).await;
    let edit =
        |text: String, allow_weaker: bool| Control::EditTask(TaskEdit { text, allow_weaker, ..TaskEdit::default() });
    let weaker = TASK
        .replace(
            "- [ ] M1.2 The door is open\n  - verify: `sh tests/door.sh`\n",
            "- [ ] M1.3 The key is there\n  - verify: `test -f key.txt`\n",
        )
        .replace("sh tests/all.sh", "sh tests/key.sh");
    let why = apply_control(&case, edit(weaker.clone(), false)).await.unwrap_err();
    assert!(why.contains("it would change `test_command`") && why.contains("--allow-weaker"), "{why}");
    let state = apply_control(&case, edit(weaker.clone(), true)).await.unwrap();
    let boxes: Vec<&str> = state.started.boxes.iter().map(|pinned| pinned.id.as_str()).collect();
    assert_eq!((boxes, state.started.test_command.as_str()), (vec!["M1.1", "M1.3"], "sh tests/key.sh"));
    assert_eq!(state.started.proof_files, ["tests/key.sh"]);
    let pinned =
        apply_control(&case, edit(weaker.replace("max_iterations: 12", "max_iterations: 99"), true)).await.unwrap_err();
    assert!(pinned.contains("pinned when the run started"), "{pinned}");
}

/// A run that a diagnosis saves, killed wherever the diagnosis could be torn.
#[test]
fn killed_in_the_middle_of_a_diagnosis() {
    let task = TASK.replace("max_iterations: 12", "max_iterations: 12\ndiagnose: {apply: auto}");
    let fresh = || {
        let case = case(&task, &stuck_script());
        case.helper(
            "doctor",
            &script(&[
                when(json!({"text": "Hm.", "usage": {"input": 10, "output": 1}}), &json!({"call": 0})),
                when(json!({"json": diagnosis(), "usage": {"input": 10, "output": 1}}), &json!({"call": 1})),
            ]),
        );
        case
    };
    let mut undisturbed = fresh();
    assert_eq!(undisturbed.run(KillPoint::Never), RunnerEnding::ByItself);
    let want = undisturbed.outcome();
    assert_eq!(want.status, "Succeeded", "{}", undisturbed.event_text());
    let report = mirror(&undisturbed, "diagnostics.md");
    let at = |wanted: fn(&Event) -> bool| undisturbed.lines().iter().find(|line| wanted(&line.event)).unwrap().seq;
    let from = at(|event| matches!(event, Event::MitigationApplied { rung: LadderRung::Diagnose, .. }));
    let to = undisturbed.lines().iter().rfind(|line| matches!(line.event, Event::ControlApplied { .. })).unwrap().seq;
    assert!(to - from >= 4, "{}", undisturbed.event_text());
    // Before events whose files are already written, and after every event.
    let written = at(|event| matches!(event, Event::DiagnosisWritten { .. }));
    let kills = (from..=to).map(KillPoint::After).chain([written, to].map(KillPoint::Before));
    for kill in kills {
        let mut case = fresh();
        assert_eq!(case.run(kill), RunnerEnding::Killed, "{kill:?}");
        case.go_on();
        assert_eq!(case.outcome(), want, "{kill:?}\n{}", case.event_text());
        assert_eq!(mirror(&case, "diagnostics.md"), report, "{kill:?}");
        case.assert_tidy();
    }
}

/// A run that goes in circles changes and tests nothing: the diagnosis needs the last test output before that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_diagnosis_prompt_shows_the_newest_tests() {
    let ajar = reply("Ajar.", &[json!({"type": "write", "path": "door.txt", "content": "ajar\n"})], &[]);
    let mut stuck = stuck_reply();
    stuck["repeat"] = true.into();
    let case = case(TASK, &script(&[ajar, stuck]));
    case.helper("doctor", &diagnosis_script(&diagnosis()));
    run(&case, |request| request.ladder = vec![LadderRung::Diagnose, LadderRung::Pause]).await;
    let asked = case.folder().unwrap().path().join("diagnoses/1/prompt.md");
    let asked = std::fs::read_to_string(asked).unwrap_or_else(|_| panic!("{}", case.event_text()));
    let tests = asked.split("# Last test output (iteration 1)\n").nth(1).unwrap_or_else(|| panic!("{asked}"));
    assert!(tests.lines().nth(2) == Some("the key is not turned"), "{asked}");
}
