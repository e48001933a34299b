//! Tests a run that goes in circles as users see it: in the cage, with its ladder, its diagnosis and what to do about
//! it.

use std::fs;

use ralph_testkit::home::{TASK, TestHome};
use serde_json::{Value, json};

use crate::cli_harness::{BOTH_BOXES, RalphHarness, RalphProcess, answer, honest_actions, run};

/// Profiles for every rung of the ladder, all played from one script.
const MODELS: &str = "profiles:\n  lab: {litellm_model: \"scripted/script.jsonl\", price: {input_per_mtok: 1, output_per_mtok: 2}}\n  \
     strong: {litellm_model: \"scripted/script.jsonl\", price: {input_per_mtok: 3, output_per_mtok: 6}}\n  \
     doctor: {litellm_model: \"scripted/script.jsonl\", price: {input_per_mtok: 5, output_per_mtok: 10}}\n";

const CONFIG: &str = "[model]\ndefault = \"lab\"\nfallback = \"strong\"\ndoctor = \"doctor\"\n";

const GUARDRAIL_TEXT: &str = "write the numbers before you check them";

fn diagnosis() -> Value {
    json!({
        "patterns": ["tests/one.sh is run again and again"],
        "causes": ["one.txt was never written"],
        "guardrails": [{"trigger": "a check is red", "instruction": GUARDRAIL_TEXT, "evidence": "three red runs, no change"}],
        "task_diff": "@@ -1 +1 @@\n-`one.txt` and `two.txt` shall hold what their checks ask for.\n+`one.txt` shall hold 1 and `two.txt` shall hold 2.\n",
        "profile": {"name": "strong", "why": "it has not tried enough"},
    })
}

/// Returns a run whose model goes in circles until it sees the guardrail, and whose doctor profile proposes it.
fn looping_run() -> RalphHarness {
    looping_run_with_task(&TASK.replace("max_iterations: 1", "max_iterations: 12"))
}

fn looping_run_with_task(task: &str) -> RalphHarness {
    let home = TestHome::with_task(task);
    home.config("models.yaml", MODELS);
    home.config("config.toml", CONFIG);
    let mut circle = answer(&[run("sh tests/one.sh")], &[]);
    circle["repeat"] = true.into();
    let mut doctor = json!({"json": diagnosis()});
    doctor["when"] = json!({"profile": "doctor"});
    let mut out = answer(&honest_actions(), &BOTH_BOXES);
    out["when"] = json!({"prompt_contains": GUARDRAIL_TEXT});
    RalphHarness::with_home(home, &[circle, doctor, out])
}

fn rungs(ralph: &RalphHarness) -> Vec<String> {
    let word = |event: &Value| event["rung"].as_str().unwrap_or_default().to_owned();
    ralph.events_of("mitigation-applied").iter().map(word).collect()
}

#[test]
fn a_diagnosis_ends_the_loop() {
    let ralph = looping_run();
    let output = ralph.ralph(&["run"]).expect_exit(5);
    assert_eq!(rungs(&ralph), ["rotate", "fallback", "diagnose", "pause"]);
    let id = ralph.run_id();
    // The output has one sentence about what to do.
    let next =
        format!("ralph apply {id} 1 (what the diagnosis proposes; ralph apply {id} lists all), then ralph resume {id}");
    assert!(output.stderr.contains(&format!("next: {next}")), "{}", output.stderr);
    assert_eq!(ralph.show()["next"], next);

    let listed = ralph.ralph(&["apply", "@"]).expect_exit(0);
    let lines: Vec<&str> = listed.stdout.lines().collect();
    assert_eq!(lines.len(), 3, "{}", listed.stdout);
    assert!(lines[0].contains("open") && lines[0].contains(GUARDRAIL_TEXT), "{}", listed.stdout);
    ralph.ralph(&["apply", "@", "1"]).expect_exit(0);
    let again = ralph.ralph(&["apply", "@", "1"]).expect_exit(2);
    assert!(again.stderr.contains("proposal 1 was applied before"), "{}", again.stderr);
    let listed: Value = serde_json::from_str(&ralph.ralph(&["apply", "@", "--json"]).expect_exit(0).stdout).unwrap();
    assert_eq!((&listed["proposals"][0]["applied"], &listed["proposals"][1]["applied"]), (&json!(true), &json!(false)));

    ralph.ralph(&["resume", "@"]).expect_exit(0);
    assert_eq!(ralph.show()["state"], "succeeded");
    assert_eq!(ralph.branch_file("one.txt").as_deref(), Some("1\n"));
    assert!(ralph.state_file("guardrails.md").contains(GUARDRAIL_TEXT));
    assert!(ralph.state_file("diagnostics.md").contains("## Diagnosis 1"));
}

#[test]
fn gutter_explain_shows_the_score() {
    let ralph = looping_run();
    ralph.ralph(&["run"]).expect_exit(5);
    let output = ralph.ralph(&["gutter", "explain", "@", "3"]).expect_exit(0);
    insta::assert_snapshot!(output.stdout, @r"
    iteration 3 0.80, gutter
      A 0.5  `sh tests/one.sh` failed with exit code 1 and the same error in 3 of the last 3 iterations (1, 2, 3)
      B 0.3  nothing changed in the last 3 iterations
      C 0.0  no file went back and forth between the same two contents
      0.5 + 0.3 + 0.0 = 0.8; 0.7 and more is gutter
      verdict 1 without progress → rotate: a fresh session with the reason in its prompt
    ");
    let all: Value =
        serde_json::from_str(&ralph.ralph(&["gutter", "explain", "@", "--json"]).expect_exit(0).stdout).unwrap();
    let iterations = all["iterations"].as_array().unwrap();
    let words: Vec<(u64, bool, &str)> = iterations
        .iter()
        .map(|one| {
            let rung = one["rung"].as_str().unwrap_or("-");
            (one["n"].as_u64().unwrap_or(0), one["gutter"] == true, rung)
        })
        .collect();
    let want = [
        (1, false, "-"),
        (2, false, "-"),
        (3, true, "rotate"),
        (4, true, "fallback"),
        (5, true, "diagnose"),
        (6, true, "pause"),
    ];
    assert_eq!(words, want);
    let output = ralph.ralph(&["gutter", "explain", "@", "40"]).expect_exit(2);
    assert!(output.stdout.is_empty() && output.stderr.contains("was not scored"), "{}", output.stderr);
}

#[test]
fn the_ladder_is_configured_by_user_or_task() {
    let ralph = looping_run();
    ralph.config("config.toml", &format!("{CONFIG}[run]\nladder = [\"rotate\", \"rotate\", \"give-up\"]\n"));
    let output = ralph.ralph(&["run"]).expect_exit(1);
    assert!(output.stderr.contains("failed: gutter: it went in circles"), "{}", output.stderr);
    assert_eq!(rungs(&ralph), ["rotate", "rotate"]);

    let task = TASK.replace("max_iterations: 1", "max_iterations: 12\nmax_consecutive_gutter: 2\nladder: [fallback]");
    let ralph = looping_run_with_task(&task);
    ralph.ralph(&["run"]).expect_exit(1);
    assert_eq!((rungs(&ralph), ralph.show()["state"].as_str()), (vec!["fallback".to_owned()], Some("failed")));
}

#[test]
fn a_resting_run_is_changed_by_hand() {
    let ralph = looping_run();
    ralph.script(&[
        answer(&[json!({"type": "pause", "reason": "a question"})], &[]),
        answer(&honest_actions(), &BOTH_BOXES),
        json!({"json": diagnosis(), "when": {"profile": "doctor"}}),
    ]);
    ralph.ralph(&["run"]).expect_exit(5);
    let output = ralph.ralph(&["apply", "@"]).expect_exit(0);
    assert!(output.stderr.contains("nothing was proposed"), "{}", output.stderr);
    let output = ralph.ralph(&["diagnose", "@"]).expect_exit(0);
    assert_eq!(output.stdout.lines().count(), 3, "{}", output.stdout);
    assert!(output.stderr.contains("applies one"), "{}", output.stderr);
    // A clearer task, kept beside the old one.
    ralph.ralph(&["apply", "@", "2"]).expect_exit(0);
    let text = |name: &str| fs::read_to_string(ralph.run_folder().join(name)).expect("a revision");
    assert!(
        text("task.md").contains("what their checks ask for") && text("task-2.md").contains("`one.txt` shall hold 1")
    );
    // Another profile, by proposal and by name.
    ralph.ralph(&["apply", "@", "3"]).expect_exit(0);
    ralph.ralph(&["set-profile", "@", "lab"]).expect_exit(0);
    let output = ralph.ralph(&["set-profile", "@", "nobody"]).expect_exit(2);
    assert!(output.stderr.contains("the run knows the profiles lab, strong, doctor"), "{}", output.stderr);
    ralph.ralph(&["resume", "@"]).expect_exit(0);
    let pushed = ralph.branch_file("ralph_task.md").expect("the task");
    assert!(pushed.contains("`one.txt` shall hold 1 and"), "{pushed}");
}

#[test]
fn edits_that_weaken_a_proof_are_refused() {
    let ralph = looping_run();
    ralph.script(&[answer(&[json!({"type": "pause", "reason": "a question"})], &[])]);
    ralph.ralph(&["run"]).expect_exit(5);
    let task = fs::read_to_string(ralph.run_folder().join("task.md")).expect("the task");
    let file = ralph.root().join("new.md");
    let edit = |text: String, more: &[&str]| {
        fs::write(&file, text).expect("a file");
        let mut args = vec!["edit-task", "@", file.to_str().unwrap()];
        args.extend(more);
        ralph.ralph(&args)
    };
    let weaker = task.replace("`sh tests/two.sh`", "`true`");
    let output = edit(weaker.clone(), &[]).expect_exit(2);
    assert!(output.stderr.contains("it would take the proof `sh tests/two.sh` from box `M1.2`"), "{}", output.stderr);
    let output =
        edit(task.replace("max_cost_usd_estimate: 1", "max_cost_usd_estimate: 9"), &["--allow-weaker"]).expect_exit(2);
    assert!(output.stderr.contains("it would change `max_cost_usd_estimate`"), "{}", output.stderr);
    edit(weaker, &["--allow-weaker"]).expect_exit(0);
    assert_eq!(ralph.events_of("control-applied").len(), 1);
}

/// Starts a run and waits until it is in an iteration that lasts until `.ralph/go` exists.
fn start_in_iteration(ralph: &RalphHarness) -> RalphProcess {
    let short = vec![run("[ -e .ralph/go ] || sleep 0.05"); 60];
    ralph.script(&[
        answer(&short, &[]),
        answer(&honest_actions(), &BOTH_BOXES),
        json!({"json": diagnosis(), "when": {"profile": "doctor"}}),
    ]);
    let live = ralph.start(&["run"]);
    ralph.await_event("an action", |event| event["type"] == "action-started");
    live
}

#[test]
fn a_live_run_is_diagnosed_between_two_iterations() {
    let ralph = looping_run();
    let live = start_in_iteration(&ralph);
    let output = ralph.ralph(&["diagnose", "@"]).expect_exit(0);
    assert!(output.stderr.contains("when the iteration under way has ended"), "{}", output.stderr);
    fs::write(ralph.workspace().join(".ralph/go"), "").expect("a file");
    live.wait().expect_exit(0);
    let written = ralph.events_of("diagnosis-written");
    assert_eq!((written.len(), &written[0]["n"], &written[0]["proposals"]), (1, &json!(1), &json!(3)));
}

#[test]
fn a_diagnosis_within_an_iteration_waits_for_its_end() {
    let ralph = looping_run();
    let live = start_in_iteration(&ralph);
    ralph.ralph(&["pause", "@"]).expect_exit(0);
    live.wait().expect_exit(5);
    let output = ralph.ralph(&["diagnose", "@"]).expect_exit(0);
    assert!(output.stderr.contains(&format!("at its end: ralph resume {}", ralph.run_id())), "{}", output.stderr);
    assert_eq!(ralph.events_of("diagnosis-written").len(), 0);
    fs::write(ralph.workspace().join(".ralph/go"), "").expect("a file");
    ralph.ralph(&["resume", "@"]).expect_exit(0);
    assert_eq!(ralph.events_of("diagnosis-written").len(), 1);
}

#[test]
fn the_demo_shows_every_step() {
    let ralph = looping_run();
    let dir = ralph.root().join("demo");
    let began = std::time::Instant::now();
    let output = ralph.ralph(&["demo", "--dir", dir.to_str().unwrap()]).expect_exit(0);
    assert!(began.elapsed().as_secs() < 60, "{:?}", began.elapsed());
    let mut rest = output.stderr.as_str();
    // In this order.
    for words in [
        "red first: 4 of 4",
        "claimed M1.2 without proof: not ticked",
        "a protected path was changed and put back",
        "a fresh session that gets the reason",
        "the fallback profile demo-strong",
        "a diagnosis by demo-doctor with 1 proposal",
        "a person has to look",
        "paused: gutter: it went in circles",
        "next: ralph apply",
        "Now a person is asked (exit code 5)",
        "apply-proposal by the demo",
        "succeeded",
        "signed receipt",
    ] {
        let Some((_, after)) = rest.split_once(words) else { panic!("`{words}` is missing in\n{}", output.stderr) };
        rest = after;
    }
    assert_eq!(ralph.show()["state"], "succeeded");
}
