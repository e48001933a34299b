//! Tests the baseline (red-first): a proof that passes before any work shows nothing, at the start, after a resume,
//! and in an edited task.

use ralph_testkit::home::{TASK, TestHome};
use serde_json::{Value, json};

use crate::cli_harness::{BOTH_BOXES, RalphHarness, answer, answer_in, honest_actions};

fn task_with_more_iterations() -> String {
    TASK.replace("max_iterations: 1", "max_iterations: 9")
}

/// Writes a text beside the checkout and makes it the task of the only run.
#[track_caller]
fn edit_task(ralph: &RalphHarness, text: &str) {
    let path = ralph.root().join("edited.md");
    std::fs::write(&path, text).unwrap();
    ralph.ralph(&["edit-task", "@", path.to_str().unwrap(), "--allow-weaker"]).expect_exit(0);
}

#[test]
fn a_resume_repeats_the_refusal() {
    let mut vacuous = task_with_more_iterations();
    for (from, to) in
        [("sh tests/all.sh", "test -f README.md"), ("sh tests/one.sh", "true"), ("sh tests/two.sh", "test -d tests")]
    {
        vacuous = vacuous.replace(from, to);
    }
    let ralph = RalphHarness::with_home(TestHome::with_task(&vacuous), &[answer(&honest_actions(), &BOTH_BOXES)]);
    ralph.ralph(&["run"]).expect_exit(2);
    for _ in 0..2 {
        let output = ralph.ralph(&["resume", "@"]).expect_exit(2);
        assert!(output.stderr.contains("cannot continue: red first: every proof already passes"), "{}", output.stderr);
        assert!(output.stderr.contains(&format!("hint: ralph edit-task {} FILE", ralph.run_id())), "{}", output.stderr);
    }
    ralph.ralph(&["rewind", "@", "0"]).expect_exit(0);
    ralph.ralph(&["resume", "@"]).expect_exit(2);
    // Rewording the task does not change the result on the base commit.
    edit_task(&ralph, &vacuous.replace("shall hold", "must hold"));
    ralph.ralph(&["resume", "@"]).expect_exit(2);
    assert_eq!((ralph.events_of("baseline-checked").len(), ralph.events_of("model-called").len()), (2, 0));
    edit_task(&ralph, &task_with_more_iterations());
    ralph.ralph(&["resume", "@"]).expect_exit(0);
    assert_eq!(ralph.events_of("baseline-checked").len(), 3);
    assert_eq!(ralph.show()["state"], "succeeded");
}

#[test]
fn proofs_of_an_edited_task_run_red_first_too() {
    let pause = json!({"type": "pause", "reason": "a question"});
    let ralph = RalphHarness::with_home(
        TestHome::with_task(&task_with_more_iterations()),
        &[answer_in(1, &[pause], &[]), answer_in(2, &honest_actions(), &["M1.1", "M1.2", "M1.3"])],
    );
    ralph.ralph(&["run"]).expect_exit(5);
    let more =
        |proof: &str| format!("{}- [ ] M1.3 It is written down\n  - verify: `{proof}`\n", task_with_more_iterations());
    let calls = |ralph: &RalphHarness| ralph.events_of("model-called").len();
    edit_task(&ralph, &more("no-such-program --now"));
    let output = ralph.ralph(&["resume", "@"]).expect_exit(2);
    assert!(output.stderr.contains("the proof of `M1.3` needs `no-such-program`"), "{}", output.stderr);
    assert_eq!(calls(&ralph), 1);
    edit_task(&ralph, &more("test -f README.md"));
    ralph.ralph(&["resume", "@"]).expect_exit(0);
    let message = Value::from(ralph.events_of("log")).to_string();
    assert!(message.contains("the proof of `M1.3` already passes"), "{message}");
    assert_eq!((ralph.events_of("baseline-checked").len(), calls(&ralph)), (3, 2));
}

#[cfg(target_os = "linux")]
#[test]
fn a_host_that_the_policy_denies_is_named() {
    let task = task_with_more_iterations().replace("sh tests/two.sh", "curl -sSf -m 20 https://pkg.example.com/two");
    let ralph = RalphHarness::with_home(TestHome::with_task(&task), &[answer(&honest_actions(), &BOTH_BOXES)]);
    let message = "the proof of `M1.2` needs the host `pkg.example.com`, which the policy denies";
    let output = ralph.ralph(&["lint", "--baseline"]).expect_exit(2);
    assert!(format!("{}{}", output.stdout, output.stderr).contains(message), "{}{}", output.stdout, output.stderr);
    let output = ralph.ralph(&["run"]).expect_exit(2);
    assert!(output.stderr.contains(message), "{}", output.stderr);
    let denied = ralph.events_of("policy-denied").first().unwrap().clone();
    assert_eq!((&denied["host"], &denied["remedy"]), (&"pkg.example.com".into(), &"pkg.example.com".into()));
    // The event log shows what to do about it.
    let next = "\n         next: ralph policy allow pkg.example.com --run ";
    assert!(output.stderr.contains(next), "{}", output.stderr);
    // The user may have allowed it meanwhile: the baseline is run again, with the same result.
    let output = ralph.ralph(&["resume", "@"]).expect_exit(2);
    assert!(output.stderr.contains(message), "{}", output.stderr);
    assert_eq!((ralph.events_of("baseline-checked").len(), ralph.events_of("model-called").len()), (2, 0));
}
