//! Tests steering: the controls of a run while it works and while it rests.

use std::fs;

use ralph_testkit::home::{TASK, TestHome};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::cli_harness::{
    BOTH_BOXES, RalphHarness, RalphProcess, answer, answer_in, commit, honest_actions, run, wait_until, write,
};

/// Returns an action that waits until the test releases it.
fn waiting_action() -> Value {
    run("echo $$ > .ralph/pid; until [ -e .ralph/go ]; do sleep 0.01; done")
}

/// Returns a home whose task allows more iterations.
fn home_with_more_iterations() -> TestHome {
    TestHome::with_task(&TASK.replace("max_iterations: 1", "max_iterations: 9"))
}

/// Starts a run and waits until its first iteration is in the waiting action.
#[track_caller]
fn start_and_wait(ralph: &RalphHarness, args: &[&str]) -> RalphProcess {
    let live = ralph.start(args);
    ralph.await_event("the gate", |event| event["type"] == "action-started" && event["kind"] == "run");
    wait_until("the command", || {
        fs::read_to_string(ralph.workspace().join(".ralph/pid")).is_ok_and(|pid| pid.ends_with('\n'))
    });
    live
}

fn release_action(ralph: &RalphHarness) {
    fs::write(ralph.workspace().join(".ralph/go"), "").expect("a file");
}

fn home_with_waiting_action() -> RalphHarness {
    let mut actions = vec![waiting_action()];
    actions.extend(honest_actions());
    RalphHarness::with_home(home_with_more_iterations(), &[answer(&actions, &BOTH_BOXES)])
}

#[track_caller]
fn reason(ralph: &RalphHarness) -> (String, String) {
    let shown = ralph.show();
    let word = |name: &str| shown[name].as_str().unwrap_or_default().to_owned();
    (word("state"), word("reason"))
}

#[test]
fn pause_and_resume() {
    // Each action is short, so that the pause takes effect at the end of one of them.
    let mut actions = vec![run("[ -e .ralph/go ] || sleep 0.05"); 60];
    actions.extend(honest_actions());
    let ralph = RalphHarness::with_home(home_with_more_iterations(), &[answer(&actions, &BOTH_BOXES)]);
    let live = ralph.start(&["run"]);
    ralph.await_event("an action", |event| event["type"] == "action-started");
    let output = ralph.ralph(&["pause", "@"]).expect_exit(0);
    assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
    live.wait().expect_exit(5);
    assert_eq!(reason(&ralph), ("paused".to_owned(), "a person asked for it".to_owned()));
    let done = ralph.events_of("action-finished");
    assert!(done.len() < 60 && done.iter().all(|event| event["outcome"] == "ok"), "{done:?}");
    assert_eq!(ralph.events_of("action-started").len(), done.len(), "an action was left half done");

    release_action(&ralph);
    ralph.ralph(&["resume", "@"]).expect_exit(0);
    assert_eq!(ralph.events_of("action-finished").len(), 63, "an action was lost or done twice");
}

#[test]
fn stop_kills_the_action_and_keeps_the_commits() {
    let actions = [write("one.txt", "1\n"), commit("one"), run("echo $$ > .ralph/pid; sleep 600 & sleep 600")];
    let ralph = RalphHarness::with_home(home_with_more_iterations(), &[answer(&actions, &["M1.1"])]);
    let live = start_and_wait(&ralph, &["run"]);
    let busy = ralph.workspace_busy();
    assert!(busy(), "the command runs");
    ralph.ralph(&["stop", "@"]).expect_exit(0);
    let output = live.wait().expect_exit(1);
    assert_eq!(reason(&ralph), ("stopped".to_owned(), "a person asked for it".to_owned()));
    wait_until("the end of the command", || !busy());
    assert_eq!(ralph.branch_file("one.txt").as_deref(), Some("1\n"), "{}", output.stderr);
    assert_eq!(ralph.show()["boxes_verified"], 0, "nothing was checked");
}

#[test]
fn notes_and_guardrails_reach_the_prompt() {
    let ralph = home_with_waiting_action();
    let live = start_and_wait(&ralph, &["run"]);
    // A live run applies them at its next step; they are sent before that.
    let asked = [
        ralph.start(&["note", "@", "use", "the", "abacus"]),
        ralph.start(&["guardrail", "@", "never count backwards"]),
        ralph.start(&["rotate", "@", "--why", "a fresh look"]),
    ];
    release_action(&ralph);
    for asked in asked {
        // A control that arrives after the end of the run is refused, which is an answer too.
        asked.wait();
    }
    live.wait().expect_exit(0);
    let applied = ralph.events_of("control-applied").len();
    assert!(applied <= 3);

    let ralph = RalphHarness::with_home(
        home_with_more_iterations(),
        &[answer(&[json!({"type": "pause", "reason": "a question"})], &[]), answer(&honest_actions(), &BOTH_BOXES)],
    );
    ralph.ralph(&["run"]).expect_exit(5);
    ralph.ralph(&["note", "@", "use", "the", "abacus"]).expect_exit(0);
    ralph.ralph(&["guardrail", "@", "never count backwards"]).expect_exit(0);
    ralph.ralph(&["rotate", "@", "--why", "a fresh look"]).expect_exit(0);
    assert_eq!(reason(&ralph).0, "paused", "steering does not start a run");
    ralph.ralph(&["resume", "@"]).expect_exit(0);
    let prompt = fs::read_to_string(ralph.run_folder().join("iterations/2/prompt.md")).expect("a prompt");
    for words in ["use the abacus", "never count backwards", "a fresh look"] {
        assert!(prompt.contains(words), "`{words}` is not in the prompt");
    }
    let kinds: Vec<Value> =
        ralph.events_of("control-applied").iter().map(|event| event["control"]["type"].clone()).collect();
    assert_eq!(kinds, ["note", "guardrail", "rotate"]);
}

#[test]
fn live_notes_reach_the_next_prompt() {
    let short = vec![run("[ -e .ralph/go ] || sleep 0.05"); 60];
    let ralph = RalphHarness::with_home(
        home_with_more_iterations(),
        &[answer(&short, &[]), answer(&honest_actions(), &BOTH_BOXES)],
    );
    let live = ralph.start(&["run"]);
    ralph.await_event("an action", |event| event["type"] == "action-started");
    ralph.ralph(&["note", "@", "use the abacus"]).expect_exit(0);
    ralph.ralph(&["guardrail", "@", "never count backwards"]).expect_exit(0);
    ralph.ralph(&["rotate", "@", "--why", "a fresh look"]).expect_exit(0);
    release_action(&ralph);
    live.wait().expect_exit(0);
    let prompt = fs::read_to_string(ralph.run_folder().join("iterations/2/prompt.md")).expect("a prompt");
    for words in ["use the abacus", "never count backwards", "a fresh look"] {
        assert!(prompt.contains(words), "`{words}` is not in the prompt");
    }
}

#[test]
fn a_resting_run_is_paused_and_stopped() {
    let ralph = RalphHarness::with_home(
        home_with_more_iterations(),
        &[answer(&[json!({"type": "pause", "reason": "a question"})], &[])],
    );
    ralph.ralph(&["run"]).expect_exit(5);
    ralph.ralph(&["pause", "@"]).expect_exit(0);
    assert_eq!(reason(&ralph).0, "paused");
    ralph.ralph(&["stop", "@"]).expect_exit(0);
    assert_eq!(reason(&ralph), ("stopped".to_owned(), "a person asked for it".to_owned()));
    let output = ralph.ralph(&["pause", "@"]).expect_exit(2);
    assert!(output.stderr.contains("it has been stopped"), "{}", output.stderr);
}

#[test]
fn one_interrupt_finishes_the_action() {
    let ralph = home_with_waiting_action();
    let live = start_and_wait(&ralph, &["run"]);
    live.interrupt();
    wait_until("its answer", || live.stderr().contains("finishing the action under way"));
    release_action(&ralph);
    let output = live.wait().expect_exit(130);
    assert!(output.stderr.contains("next: ralph resume"), "{}", output.stderr);
    assert_eq!(reason(&ralph), ("paused".to_owned(), "interrupted".to_owned()));
    let done = ralph.events_of("action-finished");
    assert_eq!((done.len(), &done[0]["outcome"]), (1, &json!("ok")), "the action was not let finish");
    ralph.ralph(&["resume", "@"]).expect_exit(0);
}

#[test]
fn two_interrupts_end_it_now() {
    let ralph = home_with_waiting_action();
    let live = start_and_wait(&ralph, &["run"]);
    let busy = ralph.workspace_busy();
    assert!(busy(), "the command runs");
    live.interrupt();
    wait_until("its answer", || live.stderr().contains("finishing the action under way"));
    live.interrupt();
    live.wait().expect_exit(130);
    assert_eq!(reason(&ralph), ("paused".to_owned(), "interrupted".to_owned()));
    assert_eq!(ralph.events_of("action-finished").len(), 0);
    wait_until("the end of the command", || !busy());
    release_action(&ralph);
    ralph.ralph(&["resume", "@"]).expect_exit(0);
}

#[test]
fn an_interrupt_ends_a_slow_model() {
    let mut slow = answer_in(1, &honest_actions(), &BOTH_BOXES);
    slow["delay_ms"] = 50_000.into();
    let ralph = RalphHarness::with_home(home_with_more_iterations(), &[slow]);
    let live = ralph.start(&["run"]);
    ralph.await_event("the call", |event| event["type"] == "iteration-started");
    live.interrupt();
    wait_until("its answer", || live.stderr().contains("finishing the action under way"));
    live.interrupt();
    live.wait().expect_exit(130);
    ralph.script(&[answer(&honest_actions(), &BOTH_BOXES)]);
    ralph.ralph(&["resume", "@"]).expect_exit(0);
    assert_eq!(ralph.show()["iteration"], 1);
}

#[test]
fn detached() {
    let ralph = home_with_waiting_action();
    let output = ralph.ralph(&["run", "--detach"]).expect_exit(0);
    assert_eq!(output.stdout, format!("{}\n", ralph.run_id()));
    assert!(output.stderr.lines().all(|line| line.contains("does NOT isolate")), "{}", output.stderr);
    ralph.await_event("the gate", |event| event["type"] == "action-started");
    assert_eq!(ralph.show()["live"], true);
    release_action(&ralph);
    ralph.await_event("the end", |event| event["type"] == "run-finished");
    wait_until("its process to let go", || ralph.show()["live"] == false);
    assert_eq!(ralph.show()["state"], "succeeded");
}

#[test]
fn one_process_at_a_time() {
    let ralph = home_with_waiting_action();
    let mut live = start_and_wait(&ralph, &["run"]);
    let id = ralph.run_id();
    let before = ralph.events().len();
    for args in [vec!["rewind", "@", "0"], vec!["resume", "@", "--in-background"]] {
        let output = ralph.ralph(&args).expect_exit(1);
        assert!(output.stderr.contains(&format!("run `{id}` is in use by another process")), "{}", output.stderr);
        assert!(output.stderr.contains(&format!("hint: ralph logs -f {id}")), "{}", output.stderr);
    }
    assert_eq!(ralph.events().len(), before, "the second process wrote events");
    assert!(live.is_running());
    release_action(&ralph);
    live.wait().expect_exit(0);
}

/// A termination signal from the system or a closed terminal saves the work under way, and nothing is lost.
#[test]
fn termination_signals_save_the_run() {
    for signal in [Signal::TERM, Signal::HUP] {
        let ralph = home_with_waiting_action();
        let live = start_and_wait(&ralph, &["run"]);
        live.signal(signal);
        // The command would wait for ever: it gets a grace period of a few seconds.
        let output = live.wait().expect_exit(130);
        assert!(output.stderr.contains("asked to end") && output.stderr.contains("ralph resume"), "{}", output.stderr);
        assert_eq!(reason(&ralph), ("paused".to_owned(), "interrupted".to_owned()));
    }
}

/// After `ralph stop` returns, the run is stopped.
#[test]
fn stop_returns_when_the_run_is_stopped() {
    let ralph = home_with_waiting_action();
    let live = start_and_wait(&ralph, &["run"]);
    ralph.ralph(&["stop", "@"]).expect_exit(0);
    assert_eq!(reason(&ralph).0, "stopped");
    live.wait();
}
