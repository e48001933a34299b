//! Tests what a proof is worth: gates count, boxes that break are open again, and a rewound run knows what was verified.

use std::fs;

use ralph_testkit::home::{TASK, TestHome};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::cli_harness::{BOTH_BOXES, RalphHarness, answer, answer_in, commit, honest_actions, wait_until, write};

fn task(front: &str) -> String {
    TASK.replace("max_iterations: 1\n", &format!("max_iterations: 4\n{front}"))
}

fn pause() -> Value {
    json!({"type": "pause", "reason": "a question"})
}

/// Every box has a proof of its own and passes; a gate decides all the same.
#[test]
fn a_failing_gate_fails_the_run() {
    for (gates, succeeds) in [("[\"false\"]", false), ("[\"test -e one.txt\", \"test -e two.txt\"]", true)] {
        let home = TestHome::with_task(&task(&format!("verify_commands: {gates}\n")));
        let ralph = RalphHarness::with_home(home, &[answer(&honest_actions(), &BOTH_BOXES)]);
        let code = i32::from(!succeeds);
        ralph.ralph(&["run"]).expect_exit(code);
        let proves = |event: &Value| event["proves"].as_array().expect("a list").clone();
        let checked: Vec<Value> = ralph.events_of("check-finished").iter().flat_map(proves).collect();
        assert!(checked.contains(&json!("verify-1")), "{checked:?}");
        let receipt = ralph.run_folder().join("receipt.json");
        assert_eq!(receipt.exists(), succeeds);
        if succeeds {
            let text = fs::read_to_string(receipt).expect("a receipt");
            assert!(text.contains("verify-1") && text.contains("verify-2"), "{text}");
        }
    }
}

#[test]
fn a_verified_box_that_breaks_is_open_again() {
    let ralph = RalphHarness::with_home(
        TestHome::with_task(&task("")),
        &[
            answer_in(1, &[write("one.txt", "1\n"), commit("one")], &["M1.1"]),
            answer_in(2, &[write("one.txt", "ruined\n"), commit("ruin")], &[]),
            answer_in(3, &[pause()], &[]),
            answer_in(4, &honest_actions(), &BOTH_BOXES),
        ],
    );
    let output = ralph.ralph(&["run"]).expect_exit(5);
    assert!(output.stderr.contains("a verified box broke, 0/2 boxes verified, broke M1.1"), "{}", output.stderr);
    let ended = ralph.events_of("iteration-finished");
    assert_eq!((&ended[1]["outcome"], &ended[1]["broken"]), (&json!("regression"), &json!(["M1.1"])));
    let shown = ralph.show();
    assert_eq!((&shown["boxes_verified"], &shown["boxes_detail"][0]["broken_in"]), (&json!(0), &json!(2)));
    let text = ralph.ralph(&["show", "@"]).expect_exit(0).stdout;
    assert!(text.contains("(verified once, broken in iteration 2)"), "{text}");
    // The task in the branch says so, and the next prompt tells the model.
    let task = fs::read_to_string(ralph.workspace().join("ralph_task.md")).expect("a task");
    assert!(!task.contains("[x]"), "{task}");
    let errors = fs::read_to_string(ralph.workspace().join(".ralph/errors.log")).expect("a log");
    assert!(errors.contains("M1.1 was verified before, and this iteration broke it"), "{errors}");
    ralph.ralph(&["resume", "@"]).expect_exit(0);
    assert_eq!(ralph.show()["boxes_detail"][0]["broken_in"], Value::Null);
}

/// After a rewind the run stands where the iteration ended: nothing verified there is forgotten, nothing verified later
/// is kept, and the model is not accused of the ticks that ralph made.
#[test]
fn a_rewound_run_knows_what_was_verified_there() {
    let ralph = RalphHarness::with_home(
        TestHome::with_task(&task("")),
        &[
            answer_in(1, &[write("one.txt", "1\n"), commit("one")], &["M1.1"]),
            answer_in(2, &[write("junk.txt", "x\n"), commit("junk"), pause()], &[]),
            answer_in(3, &[write("two.txt", "2\n"), commit("two")], &["M1.2"]),
        ],
    );
    ralph.ralph(&["run"]).expect_exit(5);
    let before = ralph.show();
    ralph.ralph(&["rewind", "@", "1"]).expect_exit(0);
    let shown = ralph.show();
    assert_eq!((&shown["boxes_verified"], &shown["boxes_detail"][0]["verified"]), (&json!(1), &json!(true)));
    assert!(shown["commits"].as_u64() < before["commits"].as_u64(), "{} {}", shown["commits"], before["commits"]);
    let task = fs::read_to_string(ralph.workspace().join("ralph_task.md")).expect("a task");
    assert_eq!(task.matches("[x]").count(), 1, "{task}");
    ralph.ralph(&["rewind", "@", "0"]).expect_exit(0);
    assert_eq!(ralph.show()["boxes_verified"], 0);
    ralph.ralph(&["rewind", "@", "1"]).expect_exit(0);
    let output = ralph.ralph(&["resume", "@"]).expect_exit(0);
    assert!(!output.stderr.contains("was changed"), "{}", output.stderr);
    assert_eq!(ralph.branch_file("junk.txt"), None);
}

/// A commit that was not pushed may hold the test that decides about the work.
#[test]
fn the_base_is_the_current_branch_as_it_is_here() {
    let home = TestHome::with_task(&task(""));
    let remote = home.repo.path().with_file_name("remote.git");
    home.repo.git(["init", "--quiet", "--bare", &remote.display().to_string()]);
    home.repo.git(["remote", "add", "origin", &remote.display().to_string()]);
    home.repo.git(["push", "--quiet", "origin", "main"]);
    home.repo.git(["remote", "set-head", "origin", "main"]);
    home.repo.write("tests/one.sh", "grep -qx uno one.txt\n");
    home.repo.commit("a stricter test");
    let ralph = RalphHarness::with_home(home, &[answer(&honest_actions(), &BOTH_BOXES)]);
    let output = ralph.ralph(&["run"]).expect_exit(1);
    let told = "the base `main` has 1 commit that `origin/main` has not";
    assert!(output.stderr.contains(told), "{}", output.stderr);
    assert!(ralph.events_of("log").iter().any(|event| event["text"].as_str().is_some_and(|text| text.contains(told))));
    assert_eq!(ralph.show()["boxes_verified"], 1, "the test of the unpushed commit decided");
}

#[test]
fn an_untouched_template_does_not_run() {
    let home = TestHome::with_task(&task(""));
    let ralph = RalphHarness::with_home(home, &[]);
    ralph.ralph(&["init", "--force"]).expect_exit(0);
    let output = ralph.ralph(&["run"]).expect_exit(2);
    assert!(output.stderr.contains("is still the text of the template"), "{}", output.stderr);
    assert!(ralph.events().is_empty(), "no run was made");
}

/// A project whose test runs the product, in a task that protects the test.
const RUNS_PRODUCT: &str = r#"---
task_id: judge-001
test_command: "sh tests/all.sh"
max_iterations: 1
max_wall_time_minutes: 10
max_cost_usd_estimate: 1
protected_paths: ["tests/"]
---

# Answer

- [ ] M1.1 The product prints 42
  - verify: `sh tests/answer.sh`
- [ ] M1.2 There is a note
  - verify: `test -s note.txt`
"#;

/// Plays one run of a model that writes these files and claims everything; returns whether it succeeded, and what was
/// verified.
fn play(product: &[(&str, &str)]) -> (RalphHarness, i32) {
    let home = TestHome::with_task(RUNS_PRODUCT);
    home.repo.write("tests/all.sh", "test -e product.sh\n");
    // A shell reads its script as it runs, so what follows the product can be changed by it.
    home.repo.write("tests/answer.sh", "out=$(sh product.sh)\n[ \"$out\" = 42 ] || exit 1\nexit 0\n");
    home.repo.write("product.sh", "echo 41\n");
    home.repo.commit("the project");
    let mut actions: Vec<Value> = product.iter().map(|(path, text)| write(path, text)).collect();
    actions.extend([write("note.txt", "done\n"), commit("all of it")]);
    let ralph = RalphHarness::with_home(home, &[answer(&actions, &BOTH_BOXES)]);
    let code = ralph.ralph(&["run"]).code.expect("an exit code");
    (ralph, code)
}

#[test]
fn a_product_cannot_change_what_judges_it() {
    let overwrite = "printf 'exit 0\\n' > tests/answer.sh; echo 41\n";
    let restore = "cp tests/answer.sh /tmp/a; printf 'exit 0\\n#%0100d\\n' 0 > tests/answer.sh; sleep 0.2; cp /tmp/a tests/answer.sh; echo 42\n";
    let memory = "python3 -c \"import os; open(f'/proc/{os.getppid()}/mem', 'r+b')\" && echo 42\n";
    let trace = "python3 -c \"import ctypes, os, sys; sys.exit(ctypes.CDLL(None).ptrace(16, os.getppid(), 0, 0) != 0)\" && echo 42\n";
    for (name, product) in [
        ("it overwrites the test", vec![("product.sh", overwrite)]),
        ("it overwrites the test and puts it back", vec![("product.sh", restore)]),
        ("it writes to the memory of the test", vec![("product.sh", memory)]),
        ("it traces the test", vec![("product.sh", trace)]),
        (
            "an attribute changes the test at checkout",
            vec![(".gitattributes", "tests/answer.sh working-tree-encoding=UTF-7-IMAP\n"), ("product.sh", "echo 41\n")],
        ),
    ] {
        let (ralph, code) = play(&product);
        let shown = ralph.show();
        assert_eq!((code, &shown["boxes_detail"][0]["verified"]), (3, &json!(false)), "{name}");
        assert!(!ralph.run_folder().join("receipt.json").exists(), "{name}");
    }
    let (ralph, code) = play(&[("product.sh", "echo 42\n")]);
    assert_eq!(code, 0, "an honest product: {}", ralph.show());
}

/// What an action leaves running does not live on into the checks.
#[test]
fn processes_of_an_action_are_ended_before_the_checks() {
    let home = TestHome::with_task(&task(""));
    home.repo.write("tests/one.sh", "test -e one.txt && sleep 0.2 && test ! -e /tmp/alive\n");
    home.repo.commit("a test that notices it");
    let keep = "(while :; do touch /tmp/alive; sleep 0.01; done) > /dev/null 2>&1 &";
    let mut actions = vec![json!({"type": "run", "command": keep})];
    actions.extend(honest_actions());
    let ralph = RalphHarness::with_home(home, &[answer(&actions, &BOTH_BOXES)]);
    ralph.ralph(&["run"]).expect_exit(0);
}

/// A proof that the run wrote itself counts, and everything that shows the result says whose it is.
#[test]
fn a_proof_that_the_run_wrote_is_named_as_its_own() {
    let home = TestHome::with_task(&task("").replace("`sh tests/one.sh`", "`sh checks/one.sh`"));
    let mut actions = vec![write("checks/one.sh", "exit 0\n")];
    actions.extend(honest_actions());
    let ralph = RalphHarness::with_home(home, &[answer(&actions, &BOTH_BOXES)]);
    ralph.ralph(&["run"]).expect_exit(0);
    let receipt = fs::read_to_string(ralph.run_folder().join("receipt.json")).expect("a receipt");
    let receipt: Value = serde_json::from_str(&receipt).expect("JSON");
    let own: Vec<&Value> =
        receipt["body"]["checks"].as_array().expect("checks").iter().map(|check| &check["written_by_run"]).collect();
    assert_eq!(own, [&Value::Null, &json!(["checks/one.sh"]), &Value::Null]);
    let request = fs::read_to_string(ralph.run_folder().join("pull-request.md")).expect("a pull request");
    assert!(
        request.contains("**The run wrote these tests itself**") && request.contains("`checks/one.sh`"),
        "{request}"
    );
    let shown = ralph.ralph(&["show", "@"]).expect_exit(0).stdout;
    assert!(shown.contains("written by the run itself: checks/one.sh"), "{shown}");
    ralph.ralph(&["verify", "@"]).expect_exit(0);
}

/// A task may give tests to the run: then its version counts, and everything that shows the result says so.
#[test]
fn a_task_can_give_tests_to_the_run() {
    let expects = |number: u8| {
        format!(
            "import unittest\nfrom app import answer\n\nclass T(unittest.TestCase):\n    def test_it(self):\n        \
             self.assertEqual(answer(), {number})\n"
        )
    };
    for (front, code) in [("", 3), ("may_change: [\"tests/test_app.py\"]\n", 0)] {
        let text = TASK.replace("protected_paths: [\"tests/\"]\n", front);
        let text = text.replace("`sh tests/one.sh`", "`python3 -m unittest discover -s tests -t .`");
        let home = TestHome::with_task(&text.replace("\"sh tests/all.sh\"", "\"sh tests/two.sh\""));
        home.repo.write("app.py", "def answer():\n    return 41\n");
        home.repo.write("tests/__init__.py", "");
        home.repo.write("tests/test_app.py", expects(42));
        home.repo.commit("a test that fails");
        let actions = [write("tests/test_app.py", &expects(41)), write("two.txt", "2\n"), commit("another answer")];
        let ralph = RalphHarness::with_home(home, &[answer(&actions, &BOTH_BOXES)]);
        ralph.ralph(&["run"]).expect_exit(code);
        if code == 0 {
            let shown = ralph.ralph(&["show", "@"]).expect_exit(0).stdout;
            assert!(shown.contains("given to the run by `may_change`:\n    tests/test_app.py"), "{shown}");
            ralph.ralph(&["verify", "@"]).expect_exit(0);
        } else {
            let errors = fs::read_to_string(ralph.workspace().join(".ralph/errors.log")).expect("a log");
            assert!(errors.contains("may_change: [\"tests/test_app.py\"]"), "{errors}");
            // Whatever the checks ran with, the work is the run's own.
            let kept = fs::read_to_string(ralph.workspace().join("tests/test_app.py")).expect("a test");
            assert_eq!(kept, expects(41));
        }
    }
}

/// `@` is the newest run of this repository, and a file named like a branch is no receipt.
#[test]
fn verify_takes_the_receipt_that_is_meant() {
    let ralph = RalphHarness::new(&[answer(&honest_actions(), &BOTH_BOXES)]);
    ralph.ralph(&["run"]).expect_exit(0);
    let branch = ralph.show()["branch"].as_str().expect("a branch").to_owned();
    ralph.repo.write(&branch, "{\"a\": \"file of the branch's name\"}\n");
    for what in ["@", &branch] {
        let output = ralph.ralph(&["verify", what]).expect_exit(0);
        assert!(output.stderr.contains("proved again"), "{what}: {}", output.stderr);
    }
    // In another repository of the same home there is no run to verify.
    let other = ralph.root().join("other");
    fs::create_dir(&other).expect("a folder");
    ralph.repo.git(["init", "--quiet", &other.display().to_string()]);
    let output = ralph.ralph_in(&other, &["verify", "@"]).expect_exit(2);
    assert!(output.stderr.contains("no run of the repository"), "{}", output.stderr);
}

/// A proof that cannot start is no red proof: nothing that the run does would let it pass.
#[test]
fn a_proof_that_cannot_start_stops_the_run() {
    for (command, lacks) in [
        ("python3 -m no_such_runner", "the Python module `no_such_runner`"),
        (".venv/bin/pytest", "the folder `.venv`"),
        ("node -e \"require('no-such-package')\"", "the npm package `no-such-package`"),
    ] {
        let home = TestHome::with_task(&task("").replace("`sh tests/one.sh`", &format!("`{command}`")));
        let ralph = RalphHarness::with_home(home, &[answer(&honest_actions(), &BOTH_BOXES)]);
        let output = ralph.ralph(&["lint", "--baseline"]).expect_exit(2);
        let rows = &output.stdout;
        assert!(rows.contains("cannot start") && rows.contains("fails") && rows.contains("M1.2"), "{rows}");
        let said = format!("cannot start, it lacks {lacks}");
        assert!(output.stderr.contains(&said), "{}", output.stderr);
        let output = ralph.ralph(&["run"]).expect_exit(2);
        assert!(output.stderr.contains(&said), "{}", output.stderr);
        assert!(ralph.events_of("model-called").is_empty(), "nothing was spent");
    }
}

/// A task or an `.env` that is no file is refused with a sentence.
#[test]
fn devices_and_pipes_are_not_read() {
    let ralph = RalphHarness::new(&[answer(&honest_actions(), &BOTH_BOXES)]);
    std::os::unix::fs::symlink("/dev/zero", ralph.repo.path().join(".env")).expect("a link");
    let output = ralph.ralph(&["doctor", "--json"]);
    assert!(output.stderr.contains("`.env` was not read: it is not a regular file"), "{}", output.stderr);
    fs::remove_file(ralph.repo.path().join("ralph_task.md")).expect("a task");
    std::os::unix::fs::symlink("/dev/zero", ralph.repo.path().join("ralph_task.md")).expect("a link");
    let output = ralph.ralph(&["lint"]).expect_exit(2);
    assert!(output.stderr.contains("could not read the task file"), "{}", output.stderr);
}

/// A check runs with the tests of the start commit in the clone; if ralph is killed then, the run's own tests come back.
#[test]
fn work_that_a_check_put_aside_survives_a_kill() {
    let text = TASK.replace("protected_paths: [\"tests/\"]\n", "");
    let slow = "`test ! -e note.txt || sleep 5; python3 -m unittest discover -s tests -t .`";
    let text = text.replace("`sh tests/one.sh`", slow).replace("\"sh tests/all.sh\"", "\"sh tests/two.sh\"");
    let home = TestHome::with_task(&text);
    let (base, own) = ("assert False\n", "assert True\n");
    home.repo.write("tests/__init__.py", "");
    home.repo.write("tests/test_app.py", base);
    home.repo.commit("a test that fails");
    let actions = [write("tests/test_app.py", own), write("note.txt", "x\n"), write("two.txt", "2\n"), commit("all")];
    let ralph = RalphHarness::with_home(home, &[answer(&actions, &BOTH_BOXES)]);
    let process = ralph.start(&["run"]);
    let test = || fs::read_to_string(ralph.workspace().join("tests/test_app.py")).unwrap_or_default();
    ralph.await_event("the commit", |event| event["type"] == "action-finished" && event["index"] == 3);
    wait_until("the check to put the test back", || test() == base);
    process.signal(Signal::KILL);
    process.wait();
    ralph.ralph(&["resume", "@"]).expect_exit(3);
    assert_eq!(test(), own);
}
