//! Tests budgets: what ends a run, what it prints then, and that the printed command continues it.

use ralph_testkit::home::{TASK, TestHome};
use serde_json::{Value, json};

use crate::cli_harness::{BOTH_BOXES, ProcessOutput, RalphHarness, answer, answer_in, honest_actions, write};

/// Returns a home whose task differs in one line.
fn home_with_task(from: &str, to: &str) -> TestHome {
    let changed = TASK.replace(from, to);
    assert_ne!(changed, TASK);
    TestHome::with_task(&changed)
}

/// Returns a step that does nothing and is billed as given.
fn billed_step(iteration: u32, input: u64, output: u64) -> Value {
    let mut reply = answer_in(iteration, &[], &[]);
    reply["usage"] = json!({"input": input, "output": output});
    reply
}

/// Returns the arguments of the command that an ended run prints as its next step.
#[track_caller]
fn next_step(output: &ProcessOutput) -> Vec<String> {
    let line = output.stderr.lines().find_map(|line| line.trim().strip_prefix("next: ralph ")).expect(&output.stderr);
    line.split_whitespace().map(str::to_owned).collect()
}

/// Checks that a run ends by a budget, prints a command, and succeeds with that command.
#[track_caller]
fn check_budget_and_resume(ralph: &RalphHarness, output: ProcessOutput, limit: &str, flag: &str) {
    let output = output.expect_exit(3);
    assert!(output.stderr.contains(&format!("failed: budget: {limit}")), "{}", output.stderr);
    assert_eq!(ralph.show()["state"], "failed");
    let next = next_step(&output);
    assert!(next.iter().any(|word| word == flag), "{next:?}");
    let words: Vec<&str> = next.iter().map(String::as_str).collect();
    let again = ralph.ralph(&words).expect_exit(0);
    assert_eq!(ralph.show()["state"], "succeeded", "{}", again.stderr);
}

#[test]
fn the_last_allowed_iteration_may_succeed() {
    let ralph = RalphHarness::new(&[answer(&honest_actions(), &BOTH_BOXES)]);
    ralph.ralph(&["run"]).expect_exit(0);
    let shown = ralph.show();
    assert_eq!(
        (&shown["state"], &shown["iteration"], &shown["max_iterations"]),
        (&json!("succeeded"), &json!(1), &json!(1))
    );
}

#[test]
fn iterations() {
    let ralph = RalphHarness::new(&[answer(&[], &[]), answer(&honest_actions(), &BOTH_BOXES)]);
    let output = ralph.ralph(&["run"]);
    check_budget_and_resume(&ralph, output, "iterations", "--add-iterations");
    assert_eq!(ralph.events_of("iteration-started").len(), 2);
}

/// Returns a run that waits for the user after its first iteration.
fn paused_run() -> RalphHarness {
    let pause = json!({"type": "pause", "reason": "a question"});
    let home = home_with_task("max_iterations: 1", "max_iterations: 5");
    let ralph = RalphHarness::with_home(home, &[answer(&[pause], &[]), answer(&honest_actions(), &BOTH_BOXES)]);
    ralph.ralph(&["run"]).expect_exit(5);
    ralph
}

/// Moves the first events of the run half an hour back, so that the test does not have to wait.
fn half_an_hour_earlier(ralph: &RalphHarness, events: usize) {
    let path = ralph.run_folder().join("events.jsonl");
    let mut text = String::new();
    for (n, mut event) in ralph.events().into_iter().enumerate() {
        if n < events {
            let at: jiff::Timestamp = event["at"].as_str().expect("a time").parse().expect("a time");
            event["at"] = json!((at - jiff::SignedDuration::from_mins(30)).to_string());
        }
        text.push_str(&event.to_string());
        text.push('\n');
    }
    std::fs::write(&path, text).expect("a file");
}

#[test]
fn time() {
    let ralph = paused_run();
    half_an_hour_earlier(&ralph, 1);
    let output = ralph.ralph(&["resume", "@"]);
    check_budget_and_resume(&ralph, output, "time", "--add-minutes");
}

#[test]
fn paused_time_is_free() {
    let ralph = paused_run();
    half_an_hour_earlier(&ralph, usize::MAX);
    ralph.ralph(&["resume", "@"]).expect_exit(0);
}

#[test]
fn cost() {
    let home = home_with_task("max_iterations: 1", "max_iterations: 5");
    let ralph =
        RalphHarness::with_home(home, &[billed_step(1, 999_000, 0), answer_in(2, &honest_actions(), &BOTH_BOXES)]);
    let output = ralph.ralph(&["run"]);
    assert_eq!(ralph.events_of("model-called").len(), 1, "the second call could have cost too much: {}", output.stderr);
    assert!(
        output.stderr.contains("the next call could pass the cost budget, so it was not made"),
        "{}",
        output.stderr
    );
    assert_eq!(ralph.show()["cost_usd"], json!(0.999));
    check_budget_and_resume(&ralph, output, "cost", "--add-cost");
}

#[test]
fn tokens() {
    let home = home_with_task("max_iterations: 1", "max_iterations: 5\nmax_tokens_total: 10000");
    let ralph =
        RalphHarness::with_home(home, &[billed_step(1, 9_000, 900), answer_in(2, &honest_actions(), &BOTH_BOXES)]);
    let output = ralph.ralph(&["run"]);
    assert_eq!(ralph.events_of("model-called").len(), 1, "{}", output.stderr);
    assert_eq!(ralph.show()["tokens"], json!(9_900));
    check_budget_and_resume(&ralph, output, "tokens", "--add-tokens");
}

#[test]
fn spend_stays_below_the_cap() {
    let home = TestHome::with_task(
        &TASK
            .replace("max_iterations: 1", "max_iterations: 50\nmax_consecutive_gutter: 50")
            .replace("max_cost_usd_estimate: 1", "max_cost_usd_estimate: 0.012"),
    );
    let mut reply = answer(&[write("junk.txt", "x\n")], &[]);
    reply["repeat"] = true.into();
    let ralph = RalphHarness::with_home(home, &[reply]);
    let output = ralph.ralph(&["run"]).expect_exit(3);
    assert!(output.stderr.contains("budget"), "{}", output.stderr);
    let shown = ralph.show();
    let cost = shown["cost_usd"].as_f64().expect("a number");
    assert!(cost > 0.0 && cost <= 0.012, "{cost}");
    assert!(ralph.events_of("model-called").len() > 1);
}

#[test]
fn warnings() {
    let home = home_with_task("max_iterations: 1", "max_iterations: 100");
    let bills = [
        billed_step(1, 400_000, 0),
        billed_step(2, 150_000, 0),
        billed_step(3, 260_000, 0),
        billed_step(4, 150_000, 0),
    ];
    let ralph = RalphHarness::with_home(home, &bills);
    let output = ralph.ralph(&["run"]);
    let warned: Vec<u64> = ralph
        .events_of("budget-warned")
        .iter()
        .filter(|event| event["limit"] == "cost")
        .map(|event| event["percent"].as_u64().expect("a number"))
        .collect();
    assert_eq!(warned, [50, 80, 95], "{}", output.stderr);
    for percent in [50, 80, 95] {
        assert!(output.stderr.contains(&format!("{percent} % of the cost budget is used")), "{}", output.stderr);
    }
}

#[test]
fn an_unknown_price_needs_a_token_cap() {
    let models = "profiles:\n  lab: {litellm_model: \"openai/never-heard-of\", max_output_tokens: 2048}\n";
    let home = TestHome::new();
    home.config("models.yaml", models);
    let ralph = RalphHarness::with_home(home, &[]);
    let output = ralph.ralph(&["run"]).expect_exit(2);
    assert!(output.stderr.contains("max_tokens_total"), "{}", output.stderr);
    assert!(!ralph.state().join("runs").exists(), "a run was made");

    let home = home_with_task("max_iterations: 1", "max_iterations: 1\nmax_tokens_total: 100000");
    home.config("models.yaml", models);
    RalphHarness::with_home(home, &[]).ralph(&["lint"]).expect_exit(0);
}
