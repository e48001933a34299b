//! Red first: what passes before any work shows nothing, at the start, after a resume, and in a task that was edited.

use ralph_testkit::home::{Home, TASK};
use serde_json::{Value, json};

use crate::home::{BOTH, Ralph, answer, answer_in, honest};

fn roomy() -> String {
    TASK.replace("max_iterations: 1", "max_iterations: 9")
}

/// Puts a text beside the checkout and makes it the task of the only run.
#[track_caller]
fn edit(ralph: &Ralph, text: &str) {
    let path = ralph.root().join("edited.md");
    std::fs::write(&path, text).unwrap();
    ralph.ralph(&["edit-task", "@", path.to_str().unwrap(), "--allow-weaker"]).exits(0);
}

#[test]
fn a_resume_does_not_walk_past_the_refusal() {
    let mut vacuous = roomy();
    for (from, to) in
        [("sh tests/all.sh", "test -f README.md"), ("sh tests/one.sh", "true"), ("sh tests/two.sh", "test -d tests")]
    {
        vacuous = vacuous.replace(from, to);
    }
    let ralph = Ralph::at(Home::with_task(&vacuous), &[answer(&honest(), &BOTH)]);
    ralph.ralph(&["run"]).exits(2);
    for _ in 0..2 {
        let said = ralph.ralph(&["resume", "@"]).exits(2);
        assert!(said.stderr.contains("cannot go on: red first: every proof already passes"), "{}", said.stderr);
        assert!(said.stderr.contains(&format!("hint: ralph edit-task {} FILE", ralph.run_id())), "{}", said.stderr);
    }
    ralph.ralph(&["rewind", "@", "0"]).exits(0);
    ralph.ralph(&["resume", "@"]).exits(2);
    // Other words change nothing about what the base commit says.
    edit(&ralph, &vacuous.replace("shall hold", "must hold"));
    ralph.ralph(&["resume", "@"]).exits(2);
    assert_eq!((ralph.events_of("baseline-checked").len(), ralph.events_of("model-called").len()), (2, 0));
    edit(&ralph, &roomy());
    ralph.ralph(&["resume", "@"]).exits(0);
    assert_eq!(ralph.events_of("baseline-checked").len(), 3);
    assert_eq!(ralph.show()["state"], "succeeded");
}

#[test]
fn proofs_of_an_edited_task_run_red_first_too() {
    let pause = json!({"type": "pause", "reason": "a question"});
    let ralph = Ralph::at(
        Home::with_task(&roomy()),
        &[answer_in(1, &[pause], &[]), answer_in(2, &honest(), &["M1.1", "M1.2", "M1.3"])],
    );
    ralph.ralph(&["run"]).exits(5);
    let more = |proof: &str| format!("{}- [ ] M1.3 It is written down\n  - verify: `{proof}`\n", roomy());
    let calls = |ralph: &Ralph| ralph.events_of("model-called").len();
    edit(&ralph, &more("no-such-program --now"));
    let said = ralph.ralph(&["resume", "@"]).exits(2);
    assert!(said.stderr.contains("the proof of `M1.3` needs `no-such-program`"), "{}", said.stderr);
    assert_eq!(calls(&ralph), 1);
    edit(&ralph, &more("test -f README.md"));
    ralph.ralph(&["resume", "@"]).exits(0);
    let told = Value::from(ralph.events_of("log")).to_string();
    assert!(told.contains("the proof of `M1.3` already passes"), "{told}");
    assert_eq!((ralph.events_of("baseline-checked").len(), calls(&ralph)), (3, 2));
}

#[cfg(target_os = "linux")]
#[test]
fn a_host_that_the_policy_denies_is_named() {
    let task = roomy().replace("sh tests/two.sh", "curl -sSf -m 20 https://pkg.example.com/two");
    let ralph = Ralph::at(Home::with_task(&task), &[answer(&honest(), &BOTH)]);
    let told = "the proof of `M1.2` needs the host `pkg.example.com`, which the policy denies";
    let said = ralph.ralph(&["lint", "--baseline"]).exits(2);
    assert!(format!("{}{}", said.stdout, said.stderr).contains(told), "{}{}", said.stdout, said.stderr);
    let said = ralph.ralph(&["run"]).exits(2);
    assert!(said.stderr.contains(told), "{}", said.stderr);
    let denied = ralph.events_of("policy-denied").first().unwrap().clone();
    assert_eq!((&denied["host"], &denied["remedy"]), (&"pkg.example.com".into(), &"pkg.example.com".into()));
    // Who watches sees what to do about it.
    let next = "\n         next: ralph policy allow pkg.example.com --run ";
    assert!(said.stderr.contains(next), "{}", said.stderr);
    // A person may have allowed it meanwhile: the base is asked again, and says the same.
    let said = ralph.ralph(&["resume", "@"]).exits(2);
    assert!(said.stderr.contains(told), "{}", said.stderr);
    assert_eq!((ralph.events_of("baseline-checked").len(), ralph.events_of("model-called").len()), (2, 0));
}
