//! Tests resuming: after the sandbox or the run folder is gone, from an earlier iteration, from a dirty checkout, and
//! through failures of the provider.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

use ralph_testkit::home::{TASK, TestHome};
use ralph_testkit::model_server::{FakeModelServer, ModelBehaviour};
use serde_json::{Value, json};

use crate::cli_harness::{BOTH_BOXES, BRANCH, RalphHarness, answer, answer_in, commit, honest_actions, run, write};

fn home_with_more_iterations() -> TestHome {
    TestHome::with_task(&TASK.replace("max_iterations: 1", "max_iterations: 9"))
}

fn pause() -> Value {
    json!({"type": "pause", "reason": "a question"})
}

/// Returns a run in which one box is done and handed over and which then waits for the user; the rest comes in a later
/// iteration.
fn half_done(then: u32) -> RalphHarness {
    let ralph = RalphHarness::with_home(
        home_with_more_iterations(),
        &[
            answer_in(1, &[write("one.txt", "1\n"), commit("one")], &["M1.1"]),
            answer_in(2, &[pause()], &[]),
            answer_in(then, &[write("two.txt", "2\n"), commit("two")], &["M1.2"]),
        ],
    );
    ralph.ralph(&["run"]).expect_exit(5);
    assert_eq!(ralph.show()["boxes_verified"], 1);
    ralph
}

#[track_caller]
fn assert_succeeded(ralph: &RalphHarness) {
    let shown = ralph.show();
    assert_eq!((&shown["state"], &shown["boxes_verified"]), (&json!("succeeded"), &json!(2)));
    assert_eq!(ralph.branch_file("one.txt").as_deref(), Some("1\n"));
    assert_eq!(ralph.branch_file("two.txt").as_deref(), Some("2\n"));
}

#[test]
fn the_sandbox_is_gone() {
    let ralph = half_done(3);
    let sandbox = ralph.workspace().parent().expect("a sandbox").to_owned();
    fs::remove_dir_all(&sandbox).expect("it was there");
    let output = ralph.ralph(&["resume", "@"]).expect_exit(1);
    let hint = format!("ralph resume --recreate {}", ralph.run_id());
    assert!(output.stderr.contains("is gone") && output.stderr.contains(&format!("hint: {hint}")), "{}", output.stderr);
    let words: Vec<&str> = hint.split(' ').skip(1).collect();
    ralph.ralph(&words).expect_exit(0);
    assert_succeeded(&ralph);
}

/// The process that holds the run leaves it while it is asked to raise the budget: the raise counts once.
#[test]
fn a_raise_that_the_leaving_process_did_not_handle_counts_once() {
    let ralph = half_done(3);
    let before = ralph.show()["max_iterations"].as_u64().expect("a limit");
    let path = ralph.run_folder().join("control.sock");
    let listener = UnixListener::bind(&path).expect("a socket");
    let leaving = std::thread::spawn(move || {
        // The first connection is the probe whether the run is live, which sends nothing.
        for _ in 0..2 {
            let (stream, _) = listener.accept().expect("a client");
            let mut line = String::new();
            BufReader::new(&stream).read_line(&mut line).expect("a line");
            if !line.is_empty() {
                fs::remove_file(&path).expect("the socket");
                (&stream)
                    .write_all(b"{\"refused\":{\"why\":\"it has just ended\",\"retry\":true}}\n")
                    .expect("an answer");
            }
        }
    });
    ralph.ralph(&["resume", "@", "--add-iterations", "3"]).expect_exit(0);
    leaving.join().expect("both connections");
    let raises: Vec<Value> = ralph
        .events_of("control-applied")
        .iter()
        .filter(|event| event["control"]["type"] == "raise-budget")
        .cloned()
        .collect();
    assert_eq!(raises.len(), 1, "{raises:?}");
    assert_eq!(ralph.show()["max_iterations"], before + 3);
    assert_succeeded(&ralph);
}

#[test]
fn rewind_to_an_iteration() {
    let ralph = RalphHarness::with_home(
        home_with_more_iterations(),
        &[
            answer(&[write("one.txt", "1\n"), commit("one")], &["M1.1"]),
            answer(&[write("one.txt", "ruined\n"), write("junk.txt", "x\n"), commit("ruin")], &[]),
            answer(&[pause()], &[]),
            answer(&[write("two.txt", "2\n"), commit("two")], &["M1.2"]),
        ],
    );
    ralph.ralph(&["run"]).expect_exit(5);
    let output = ralph.ralph(&["rewind", "@", "7"]).expect_exit(2);
    assert!(output.stderr.contains("iteration 7"), "{}", output.stderr);
    ralph.ralph(&["rewind", "@", "1"]).expect_exit(0);
    assert_eq!(fs::read_to_string(ralph.workspace().join("one.txt")).expect("a file"), "1\n");
    assert_eq!(ralph.show()["state"], "paused", "going back does not start a run");
    ralph.ralph(&["resume", "@"]).expect_exit(0);
    assert_succeeded(&ralph);
    assert_eq!(ralph.branch_file("junk.txt"), None);
}

#[test]
fn verified_boxes_are_proved_again_in_every_recreated_sandbox() {
    let ralph = RalphHarness::with_home(
        home_with_more_iterations(),
        &[
            answer_in(1, &[write("one.txt", "1\n"), commit("one")], &["M1.1"]),
            answer_in(2, &[pause()], &[]),
            answer_in(3, &[run("rm -rf .git")], &[]),
            answer_in(4, &[write("two.txt", "2\n"), commit("two")], &["M1.2"]),
        ],
    );
    ralph.ralph(&["run"]).expect_exit(5);
    ralph.ralph(&["rewind", "@", "1"]).expect_exit(0);
    ralph.ralph(&["rewind", "@", "1"]).expect_exit(0);
    ralph.ralph(&["resume", "@", "--recreate"]).expect_exit(0);
    let reclaimed: Vec<Value> = ralph.events_of("sandbox-ready").iter().map(|ready| ready["reclaim"].clone()).collect();
    let held = || json!(["M1.1"]);
    assert_eq!(reclaimed, [json!([]), held(), held(), held(), held()]);
    assert_succeeded(&ralph);
}

#[test]
fn the_run_folder_is_gone() {
    let ralph = half_done(3);
    let cost = ralph.show()["cost_usd"].as_f64().expect("a number");
    let sandbox = ralph.show()["sandbox"].as_str().expect("a name").to_owned();
    let id = ralph.run_id();
    fs::remove_dir_all(ralph.run_folder()).expect("it was there");
    let output = ralph.ralph(&["adopt", &sandbox]).expect_exit(0);
    assert!(output.stderr.contains(&format!("next: ralph resume {id}")), "{}", output.stderr);
    let shown = ralph.show();
    assert_eq!((&shown["id"], &shown["recovered"], &shown["iteration"]), (&json!(id), &json!(true), &json!(2)));
    assert!((shown["cost_usd"].as_f64().expect("a number") - cost).abs() < 1e-9, "spend was forgotten");
    assert_eq!(shown["boxes_verified"], 0, "the state in the sandbox is only a claim");
    ralph.ralph(&["resume", &id]).expect_exit(0);
    assert_succeeded(&ralph);
    ralph.ralph(&["adopt", &sandbox]).expect_exit(2);
}

#[test]
fn a_dirty_checkout() {
    for include in [false, true] {
        let ralph = RalphHarness::with_home(
            home_with_more_iterations(),
            &[answer(&[pause()], &[]), answer(&honest_actions(), &BOTH_BOXES)],
        );
        ralph.repo.write("README.md", "# Unfinished\n");
        ralph.repo.write("untracked.txt", "mine\n");
        ralph.repo.write("more/untracked.txt", "mine\n");
        let before = ralph.snapshot_outside();
        let args = if include { vec!["run", "--include-dirty"] } else { vec!["run"] };
        let output = ralph.ralph(&args).expect_exit(5);
        let message = if include {
            "1 changed files of your checkout were taken along"
        } else {
            "1 changed and 2 untracked files"
        };
        assert!(output.stderr.contains(message), "{}", output.stderr);
        let inside = |name: &str| fs::read_to_string(ralph.workspace().join(name)).ok();
        assert_eq!(inside("untracked.txt"), None);
        assert_eq!(inside("more/untracked.txt"), None);
        let wanted = if include { "# Unfinished\n" } else { "# Counting\n" };
        assert_eq!(inside("README.md").as_deref(), Some(wanted));
        ralph.ralph(&["resume", "@"]).expect_exit(0);
        assert_eq!(ralph.changed_since(&before), Vec::<String>::new());
        assert_eq!(ralph.branch_file("README.md").as_deref(), Some(wanted));
    }
}

#[test]
fn an_uncommitted_task_is_the_first_commit() {
    let ralph = RalphHarness::new(&[answer(&honest_actions(), &BOTH_BOXES)]);
    ralph.repo.write("ralph_task.md", TASK.replace("shall hold", "must hold"));
    let before = ralph.snapshot_outside();
    ralph.ralph(&["run"]).expect_exit(0);
    assert_eq!(ralph.changed_since(&before), Vec::<String>::new());
    let commits = ralph.repo.git(["rev-list", "--reverse", &format!("main..{BRANCH}")]);
    let first = commits.lines().next().expect("a commit").to_owned();
    assert_eq!(ralph.repo.git(["diff-tree", "--no-commit-id", "--name-only", "-r", &first]), "ralph_task.md");
    assert!(ralph.repo.git(["show", &format!("{first}:ralph_task.md")]).contains("must hold"));
}

const KEY: &str = "sk-lab-4f9Kq2Zt7Wm1Xc8Vb3Nn6Lp0Rd5Gh";

/// A home whose model is a server on a local port.
struct ProviderFixture {
    ralph: RalphHarness,
    server: FakeModelServer,
    _runtime: tokio::runtime::Runtime,
}

impl ProviderFixture {
    fn new(behaviours: Vec<ModelBehaviour>) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("threads");
        let server = runtime.block_on(FakeModelServer::with_behaviours(behaviours)).expect("a port");
        let home = TestHome::new();
        home.config(
            "models.yaml",
            &format!(
                "profiles:\n  lab: {{litellm_model: \"openai/lab\", base_url: \"{}\", api_key_env: LAB_KEY, \
                 timeout_s: 1, max_output_tokens: 2048, price: {{input_per_mtok: 1, output_per_mtok: 2}}}}\n",
                server.base_url()
            ),
        );
        Self { ralph: RalphHarness::with_home(home, &[]), server, _runtime: runtime }
    }

    /// Runs a command with the key, and checks that the key is in no file afterwards.
    #[track_caller]
    fn ralph(&self, args: &[&str]) -> crate::cli_harness::ProcessOutput {
        let output = self.ralph.ralph_with(&[("LAB_KEY", KEY)], args);
        assert!(!output.stdout.contains(KEY) && !output.stderr.contains(KEY), "{}{}", output.stdout, output.stderr);
        let mut with_key = Vec::new();
        files_with_key(&self.ralph.path(), &mut with_key);
        files_with_key(&self.ralph.repo.path(), &mut with_key);
        assert_eq!(with_key, Vec::<String>::new(), "the key was written down");
        output
    }
}

fn files_with_key(folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let entry = entry.expect("an entry");
        let kind = entry.file_type().expect("a kind");
        if kind.is_dir() {
            files_with_key(&entry.path(), found);
        } else if kind.is_file() && String::from_utf8_lossy(&fs::read(entry.path()).expect("a file")).contains(KEY) {
            found.push(entry.path().display().to_string());
        }
    }
}

/// Returns the server's answer without a failure.
fn fine_answer(actions: &[Value]) -> ModelBehaviour {
    ModelBehaviour::ok(answer(actions, &BOTH_BOXES)["json"].to_string())
}

#[test]
fn a_refused_key() {
    let refused = ModelBehaviour::error(401, "invalid_api_key", &format!("Incorrect API key provided: {KEY}."));
    let fixture = ProviderFixture::new(vec![refused, fine_answer(&honest_actions())]);
    let output = fixture.ralph(&["run"]).expect_exit(4);
    assert!(output.stderr.contains("auth"), "{}", output.stderr);
    assert_eq!(fixture.server.requests().len(), 1, "a refused key is not tried again");
    fixture.ralph(&["resume", "@"]).expect_exit(0);
    assert_eq!(fixture.ralph.show()["iteration"], 1, "trouble with the key used up an iteration");
}

#[test]
fn no_key_at_all() {
    let fixture = ProviderFixture::new(vec![fine_answer(&honest_actions())]);
    let output = fixture.ralph.ralph(&["run"]).expect_exit(4);
    assert!(output.stderr.contains("LAB_KEY"), "{}", output.stderr);
    assert!(!fixture.ralph.state().join("runs").exists(), "a run was made");
}

/// Checks that the run succeeds in its only iteration after temporary failures.
#[track_caller]
fn check_recovers(trouble: Vec<ModelBehaviour>) {
    let calls = trouble.len() + 1;
    let fixture = ProviderFixture::new(trouble.into_iter().chain([fine_answer(&honest_actions())]).collect());
    fixture.ralph(&["run"]).expect_exit(0);
    assert_eq!(fixture.server.requests().len(), calls);
    assert_eq!(fixture.ralph.show()["iteration"], 1);
    let request = &fixture.server.requests()[0];
    assert_eq!(request.header("authorization"), Some(format!("Bearer {KEY}").as_str()), "the provider got the key");
    let warned = fixture.ralph.events_of("log").iter().filter(|event| event["level"] == "warn").count();
    // A slow machine may log more warnings.
    assert!(warned >= calls - 1, "failures are reported");
}

#[test]
fn a_rate_limit_with_a_retry_time() {
    let began = std::time::Instant::now();
    check_recovers(vec![ModelBehaviour::rate_limited("1")]);
    assert!(began.elapsed() >= Duration::from_secs(1), "the provider asked to wait");
}

#[test]
fn a_server_with_temporary_errors() {
    check_recovers(vec![ModelBehaviour::status(500), ModelBehaviour::html(502)]);
}

#[test]
fn a_server_that_hangs() {
    check_recovers(vec![ModelBehaviour::Hang, ModelBehaviour::Cut]);
}

#[test]
fn a_server_with_lasting_errors() {
    let fixture = ProviderFixture::new(vec![
        ModelBehaviour::error(400, "invalid_request_error", "no such thing"),
        fine_answer(&honest_actions()),
    ]);
    let output = fixture.ralph(&["run"]).expect_exit(5);
    assert!(output.stderr.contains("provider trouble"), "{}", output.stderr);
    fixture.ralph(&["resume", "@"]).expect_exit(0);
    assert_eq!(fixture.ralph.show()["iteration"], 1);
}

#[test]
fn the_key_is_not_in_the_sandbox() {
    let mut actions = vec![run("env; env > .ralph/env")];
    actions.extend(honest_actions());
    let fixture = ProviderFixture::new(vec![fine_answer(&actions)]);
    fixture.ralph(&["run", "--keep-sandbox"]).expect_exit(0);
    let env = fs::read_to_string(fixture.ralph.workspace().join(".ralph/env")).expect("a file");
    assert!(!env.contains("LAB_KEY"), "{env}");
}
