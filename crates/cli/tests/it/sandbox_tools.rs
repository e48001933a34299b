//! Tests real tools in the default sandbox, through the real program: what a user's first task needs.

use std::process::{Command, Stdio};

/// Runs a shell line in a temporary sandbox with this machine's toolchains.
#[track_caller]
fn run_in_sandbox(args: &[&str], line: &str) -> (Option<i32>, String) {
    let state = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ralph"));
    command.args(["sandbox", "exec"]).args(args).args(["--", "sh", "-ec", line]);
    command.env("RALPH_STATE_DIR", state.path().join("state")).stdin(Stdio::null());
    let out = command.output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    let left: Vec<_> = walk(&state.path().join("state/embedded/boxes"));
    assert_eq!(left, [".lock"], "something is left");
    (out.status.code(), text)
}

fn walk(dir: &std::path::Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

#[track_caller]
fn check_command(line: &str, want: &str) {
    let (code, text) = run_in_sandbox(&[], line);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains(want), "{text}");
}

#[test]
fn who_and_where() {
    check_command("id -un; pwd; hostname", "agent\n/workspace\nralph\n");
    assert_eq!(run_in_sandbox(&[], "exit 7").0, Some(7));
    assert_eq!(run_in_sandbox(&[], "kill -9 $$").0, Some(137));
    assert_eq!(run_in_sandbox(&["--timeout", "1"], "sleep 60").0, Some(124));
}

#[test]
fn git() {
    check_command(
        "git init -q -b main r && cd r && echo one > file && git add . && \
         git -c user.name=a -c user.email=a@example.com commit -qm first && git log --format=%s",
        "first",
    );
}

#[test]
fn python() {
    check_command("python3 -c 'import json, ssl, sqlite3, subprocess; print(json.dumps({\"a\": 1}))'", "{\"a\": 1}");
}

#[test]
fn node_and_npm() {
    check_command(
        "node -e 'console.log(require(\"os\").cpus().length > 0)' && mkdir p && cd p && npm init -y > /dev/null && \
         npm pkg set scripts.test='node -e \"console.log(40 + 2)\"' && npm test --silent",
        "true\n42",
    );
}

#[test]
fn cargo() {
    check_command(
        "cargo new --quiet --vcs none small && cd small && \
         echo '#[test] fn adds() { assert_eq!(1 + 1, 2); }' >> src/main.rs && \
         cargo build --quiet --offline && ./target/debug/small && cargo test --quiet --offline",
        "Hello, world!",
    );
}

#[test]
fn a_test_server_on_loopback() {
    check_command(
        "echo hello > index.html; python3 -m http.server --bind 127.0.0.1 8000 > /dev/null 2>&1 & \
         for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do \
         python3 -c 'import urllib.request as u; print(u.urlopen(\"http://127.0.0.1:8000/\").read())' 2> /dev/null \
         && exit 0; sleep 0.2; done; exit 1",
        "hello",
    );
}

#[test]
fn copies_a_directory_in() {
    let from = tempfile::tempdir().unwrap();
    std::fs::create_dir(from.path().join("inner")).unwrap();
    std::fs::write(from.path().join("inner/file"), "content\n").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", from.path().join("link")).unwrap();
    let (code, text) = run_in_sandbox(&["--copy", from.path().to_str().unwrap()], "cat inner/file; ls -A");
    assert_eq!((code, text.as_str()), (Some(0), "content\ninner\n"));
}

#[test]
fn a_host_that_is_not_allowed() {
    let ask = "python3 -c 'import urllib.request as u, sys\ntry: u.urlopen(\"http://example.com/\")\n\
        except Exception as e: print(getattr(e, \"code\", e))'";
    let (_, text) = run_in_sandbox(&["--allow-host", "example.org"], ask);
    assert!(text.contains("403"), "{text}");
    // Without an egress proxy nothing answers.
    let (_, text) = run_in_sandbox(&[], ask);
    assert!(!text.contains("403") && !text.contains("200"), "{text}");
}

#[test]
fn selftest_and_doctor() {
    let state = tempfile::tempdir().unwrap();
    let ralph = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ralph"));
        let out = command.args(args).env("RALPH_STATE_DIR", state.path().join("state")).output().unwrap();
        (out.status.code(), String::from_utf8_lossy(&out.stdout).into_owned())
    };
    let (code, text) = ralph(&["selftest", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &report["passed"]), (Some(0), &true.into()), "{text}");
    assert!(report["tried"].as_array().unwrap().iter().all(|one| one["outcome"] == "passed"), "{text}");
    let before = walk(&state.path().join("state"));
    let (code, text) = ralph(&["doctor"]);
    assert_eq!(code, Some(0), "{text}");
    assert_eq!(walk(&state.path().join("state")), before, "doctor changed something");
}

#[test]
fn a_program_opens_its_own_output_by_name() {
    check_command("echo one > /dev/stdout; echo two > /dev/stderr; echo three | tee /dev/stderr > /dev/null", "one");
}
