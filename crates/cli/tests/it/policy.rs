//! What runs may reach, as people see and change it.

use std::fs;

use insta::assert_snapshot;
use serde_json::Value;

use crate::audit::{decided, resting, run_folder};
use crate::home::{BOTH, Ralph, answer, honest, run, until};
use crate::stage::Stage;

#[test]
fn rules_and_their_origin() {
    let stage = Stage::ready();
    assert_snapshot!(stage.ralph(&["policy", "ls"]), @"");
    stage.config("config.toml", "[sandbox.network]\nallowed = ['pypi', 'GET x.io/a/*']\ndenied = ['bad.x.io']\n");
    assert_snapshot!(stage.ralph(&["policy", "ls"]), @"");
    assert_snapshot!(stage.ralph(&["policy", "ls", "--json"]), @"");
}

#[test]
fn would_it_pass() {
    let stage = Stage::new();
    stage
        .config("config.toml", "[sandbox.network]\nallowed = ['go', 'x.io:80', 'GET y.io/a/*']\ndenied = ['*.z.io']\n");
    let test = |args: &[&str]| {
        let said = stage.ralph(&[&["policy", "test"], args].concat());
        format!("{} {}", said.code, [said.stdout, said.stderr].concat().trim_end().replace('\n', " | "))
    };
    let told = [
        test(&["proxy.golang.org"]),
        test(&["X.io:80"]),
        test(&["x.io"]),
        test(&["a.z.io"]),
        test(&["y.io"]),
        test(&["y.io", "--method", "GET", "--path", "/a/b"]),
        test(&["y.io", "--method", "POST", "--path", "/a/b"]),
        test(&["y.io", "--path", "/b"]),
        test(&["[::1]:8080"]),
        test(&["x.io:0"]),
        test(&["*"]),
    ];
    assert_snapshot!(told.join("\n"), @"");
    let json = stage.ralph(&["policy", "test", "x.io", "--json"]);
    assert_snapshot!(json, @"");
}

#[test]
fn the_users_own_file() {
    let stage = Stage::new();
    let file = || fs::read_to_string(stage.repo.home().join(".config/ralph/config.toml")).unwrap_or_default();
    assert_snapshot!(stage.ralph(&["policy", "allow", "X.io", "pypi"]), @"");
    assert_snapshot!(file(), @"");
    stage.config("config.toml", "# mine\n[sandbox.network]\npolicy = \"deny\" # for now\n");
    assert_snapshot!(stage.ralph(&["policy", "allow", "x.io"]), @"");
    assert_snapshot!(stage.ralph(&["policy", "deny", "*.y.io", "x.io", "*.y.io"]), @"");
    assert_snapshot!(file(), @"");
    assert_snapshot!(stage.ralph(&["policy", "allow", "a.y.io"]), @"");
    let before = file();
    for (host, code) in [("*", 2), ("*.io", 2), ("https://x.io", 2), ("pipy", 2), ("x.io:0", 2)] {
        let said = stage.ralph(&["policy", "allow", "good.io", host]);
        assert_eq!((said.code, file()), (code, before.clone()), "{said}");
    }
    assert_snapshot!(stage.ralph(&["policy", "allow", "good.io", "*"]), @"");
    stage.config("config.toml", "[sandbox\n");
    assert_eq!(stage.ralph(&["policy", "allow", "x.io"]).code, 2);
    assert_eq!(file(), "[sandbox\n");
}

#[test]
fn a_resting_run() {
    let stage = resting();
    assert_snapshot!(stage.ralph(&["policy", "ls", "--run", "@"]), @"");
    assert_snapshot!(stage.ralph(&["policy", "allow", "x.io", "pypi", "--run", "@"]), @"");
    assert_eq!(stage.ralph(&["policy", "deny", "bad.io", "--run", "@"]).code, 0);
    assert_snapshot!(stage.ralph(&["policy", "allow", "bad.io", "--run", "@"]), @"");
    assert_snapshot!(stage.ralph(&["policy", "ls", "--run", "@"]), @"");
    assert_eq!(stage.ralph(&["policy", "test", "x.io", "--run", "@"]).code, 0);
    assert_eq!(stage.ralph(&["policy", "test", "bad.io", "--run", "@"]).code, 1);
    assert_eq!(stage.ralph(&["resume", "@"]).code, 0);
    assert_eq!(stage.ralph(&["policy", "test", "x.io", "--run", "@"]).code, 0, "it survives a resume");
    assert_snapshot!(stage.ralph(&["policy", "allow", "y.io", "--run", "@"]), @"");
}

#[test]
fn a_live_run() {
    let mut actions = vec![run("until [ -e .ralph/go ]; do sleep 0.01; done")];
    actions.extend(honest());
    let ralph = Ralph::new(&[answer(&actions, &BOTH)]);
    let live = ralph.start(&["run"]);
    ralph.await_event("the gate", |event| event["type"] == "action-started");
    let asked = ralph.start(&["policy", "allow", "x.io", "--run", "@"]);
    // The run answers between two actions, so the wish waits at its door until this one ends.
    std::thread::sleep(std::time::Duration::from_millis(300));
    fs::write(ralph.workspace().join(".ralph/go"), "").expect("a file");
    asked.wait().exits(0);
    live.wait().exits(0);
    let applied = ralph.events_of("control-applied");
    let control: Vec<&Value> = applied.iter().map(|event| &event["control"]).collect();
    assert_eq!(control, [&serde_json::json!({"type": "allow-host", "host": "x.io"})]);
    ralph.ralph(&["policy", "test", "x.io", "--run", "@"]).exits(0);
    ralph.ralph(&["policy", "allow", "y.io", "--run", "@"]).exits(2);
}

#[test]
fn the_log() {
    let stage = resting();
    assert_snapshot!(stage.ralph(&["policy", "log", "@"]), @"");
    decided(
        &stage,
        &[
            ("x.io", 443, true),
            ("y.io", 443, false),
            ("z.io", 80, false),
            ("y.io", 443, false),
            ("y.io", 443, false),
            ("\u{1b}[31mq", 443, false),
        ],
    );
    assert_snapshot!(stage.ralph(&["policy", "log", "@"]), @"");
    assert_snapshot!(stage.ralph(&["policy", "log", "-f", "@", "--denied"]), @"");
    let json = stage.ralph(&["policy", "log", "@", "--denied", "--json"]);
    let kinds: Vec<Value> = json.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(kinds.len() == 5 && kinds.iter().all(|line: &Value| line["decision"] == "denied"), "{json}");
    let path = run_folder(&stage).join("audit.jsonl");
    let torn = fs::read_to_string(&path).expect("a file").replacen("\"seq\":3", "\"seq\":", 1);
    fs::write(&path, torn).expect("a file");
    assert_snapshot!(stage.ralph(&["policy", "log", "@"]).stderr, @"");
}

/// What is written while somebody looks is shown.
#[test]
fn the_log_follows() {
    let gate = "until [ -e .ralph/go ]; do sleep 0.01; done";
    let ralph = Ralph::new(&[answer(&[vec![run(gate)], honest()].concat(), &BOTH)]);
    let live = ralph.start(&["run"]);
    ralph.await_event("the gate", |event| event["type"] == "action-started");
    let following = ralph.start(&["policy", "log", "-f", "@"]);
    until("the first words", || !following.stderr().is_empty());
    // The run itself has the book open; its next line is added here as another process would see it.
    let line = ralph_core::audit::Chain::begin(&ralph.run_id()).line(ralph_core::audit::Record {
        decision: Some("denied".to_owned()),
        host: Some("y.io".to_owned()),
        port: Some(443),
        remedy: Some("y.io".to_owned()),
        reason: Some("no rule names it".to_owned()),
        ..Default::default()
    });
    fs::write(ralph.run_folder().join("audit.jsonl"), line).expect("a file");
    let seen = || following.stdout().contains("next: ralph policy allow y.io --run ");
    until("the line", seen);
    fs::write(ralph.workspace().join(".ralph/go"), "").expect("a file");
    live.wait().exits(0);
    following.wait().exits(0);
}
