//! Tests the audit log of a run and `ralph audit verify`.

use std::fs;
use std::path::PathBuf;

use insta::assert_snapshot;
use ralph_core::policy::PolicyMode;
use ralph_core::redact::Redactor;
use ralph_engine::audit::AuditLog;
use ralph_engine::store::RunFolder;
use ralph_proxy::egress_events::{DecisionReason, EgressDecision, EgressEntry, EgressEvent};

use crate::repo_fixture::RepoFixture;

/// A script whose first iteration pauses and whose second does all the work.
pub(crate) const SCRIPT: &str = r#"{"format": 1}
{"json": {"summary": "A question.", "actions": [{"type": "pause", "reason": "a question"}], "claims": {"checkboxes_checked": [], "milestones_completed": []}}}
{"json": {"summary": "All of it.", "actions": [{"type": "write", "path": "one.txt", "content": "one\ntwo\n"}, {"type": "commit", "message": "two", "paths": ["one.txt"]}, {"type": "stop_success", "reason": "done"}], "claims": {"checkboxes_checked": ["M1.1", "M1.2"], "milestones_completed": ["M1"]}}}
"#;

/// Returns a run that waits for the user.
pub(crate) fn paused_run() -> RepoFixture {
    let fixture = RepoFixture::with_task();
    fixture.config("script.jsonl", SCRIPT);
    assert_eq!(fixture.ralph(&["run"]).code, 5);
    fixture
}

pub(crate) fn run_folder(fixture: &RepoFixture) -> PathBuf {
    fixture.state().join("runs").join(fixture.runs().first().expect("a run"))
}

/// Records decisions as the egress proxy would.
pub(crate) fn record_decisions(fixture: &RepoFixture, hosts: &[(&str, u16, bool)]) {
    let audit_log =
        AuditLog::open(&RunFolder::at(run_folder(fixture)), Redactor::new([])).expect("no other process has it open");
    for (host, port, allowed) in hosts {
        let why = if *allowed {
            DecisionReason::Rule(Box::new(host.parse().expect("a rule")))
        } else {
            DecisionReason::Mode(PolicyMode::Allowlist)
        };
        let host = (*host).to_owned();
        let (entry, port, allowed) = (EgressEntry::Connect, *port, *allowed);
        let decided = EgressDecision { entry, host, port, request: None, allowed, why, address: None };
        audit_log.write("box", &EgressEvent::Decision(decided));
    }
}

#[test]
fn verify() {
    let fixture = paused_run();
    assert_snapshot!(fixture.ralph(&["audit", "verify", "@"]), @"
    exit 0
    --- stdout
    0 lines, head SHA, not anchored
    ");
    record_decisions(&fixture, &[("x.io", 443, true), ("y.io", 443, false), ("z.io", 80, false)]);
    assert_snapshot!(fixture.ralph(&["audit", "verify", "@"]), @"
    exit 0
    --- stdout
    3 lines, head SHA, not anchored
    --- stderr
    3 lines came after the last anchor: the end is not anchored yet
    ");
    assert_eq!(fixture.ralph(&["resume", "@"]).code, 0);
    assert_snapshot!(fixture.ralph(&["audit", "verify", "ralph/small-001/write-one-file"]), @"
    exit 0
    --- stdout
    3 lines, head SHA, anchored at event 12
    ");
    let json = fixture.ralph(&["audit", "verify", "@", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&json.stdout).expect("JSON");
    assert_eq!(
        (json.code, &report["sound"], &report["lines"], &report["unanchored"]),
        (0, &true.into(), &3.into(), &0.into())
    );

    let path = run_folder(&fixture).join("audit.jsonl");
    let good = fs::read_to_string(&path).expect("a file");
    let lines: Vec<&str> = good.lines().collect();
    let verify_text = |text: String| {
        fs::write(&path, text).expect("a file");
        let output = fixture.ralph(&["audit", "verify", "@"]);
        let json = fixture.ralph(&["audit", "verify", "@", "--json"]);
        let fault: serde_json::Value = serde_json::from_str(&json.stdout).expect("JSON");
        assert_eq!((output.code, json.code, output.stdout.as_str()), (1, 1, ""));
        let cause = output.stderr.lines().find_map(|line| line.strip_prefix("  caused by: ")).unwrap_or_default();
        format!("{}: {cause}", fault["fault"]["what"].as_str().unwrap_or_default())
    };
    let cases = [
        good.replace("y.io", "w.io"),
        good.replacen("z.io", "w.io", 1),
        format!("{}\n{}\n", lines[0], lines[2]),
        format!("{}\n{}\n{}\n", lines[0], lines[2], lines[1]),
        format!("{0}\n{0}\n{1}\n{2}\n", lines[0], lines[1], lines[2]),
        format!("{}\n{}\n", lines[0], lines[1]),
        format!("{}\n{}\n{}", lines[0], lines[1], &lines[2][..100]),
        String::new(),
    ];
    assert_snapshot!(cases.map(verify_text).join("\n"), @"
    changed: line 2 was changed
    rewritten: line 3 is not the one that event 12 anchored: it or an earlier line was rewritten
    missing: record 2 is missing before line 2
    moved: line 2 is out of order: it holds record 3 instead of 2
    repeated: line 2 is a duplicate: it holds record 1 again
    short: the file ends after 2 records, and event 12 says there were 3
    torn: line 3 is torn: it ends after 100 bytes without a newline
    short: the file ends after 0 records, and event 12 says there were 3
    ");
    fs::write(&path, &good).expect("a file");
    assert_eq!(fixture.ralph(&["audit", "verify", "@"]).code, 0);
    fs::write(&path, good.replace("y.io", "w.io")).expect("a file");
    assert_snapshot!(fixture.ralph(&["audit", "verify", "@"]), @"
    exit 1
    --- stderr
    ralph: the audit log of run `RUN1` cannot be relied on
      caused by: line 2 was changed

    hint: do not rely on this file; ralph logs RUN1 shows what the events say
    log: HOME/.local/state/ralph/runs/RUN1/audit.jsonl
    ");
    assert_eq!(fixture.ralph(&["audit", "verify", "nothing"]).code, 2);
}

/// A line that a crash cut off is reported, and stays visible after the run continued.
#[test]
fn a_torn_line() {
    let fixture = paused_run();
    record_decisions(&fixture, &[("x.io", 443, true), ("y.io", 443, false)]);
    let path = run_folder(&fixture).join("audit.jsonl");
    let good = fs::read(&path).expect("a file");
    fs::write(&path, &good[..good.len() - 30]).expect("a file");
    assert_eq!(fixture.ralph(&["audit", "verify", "@"]).code, 1);
    assert_eq!(fixture.ralph(&["resume", "@"]).code, 0);
    assert_snapshot!(fixture.ralph(&["audit", "verify", "@"]), @"
    exit 0
    --- stdout
    2 lines, head SHA, anchored at event 12
    --- stderr
    1 place of it cut off by a crash or a full disk, and marked
    ");
}

/// However a run comes to rest, the last line of its audit log is anchored: nothing is recorded after the last anchor.
#[cfg(target_os = "linux")]
#[test]
fn the_end_is_anchored() {
    let ask = r#"{"type": "run", "command": "python3 -c 'import urllib.request as u; u.urlopen(\"http://x.test/\")' || true"}"#;
    let work = r#"{"type": "write", "path": "one.txt", "content": "one\ntwo\n"}, {"type": "commit", "message": "two", "paths": ["one.txt"]}, {"type": "stop_success", "reason": "done"}"#;
    for (then, flags, code, last) in [
        (work, &[][..], 0, "run-finished"),
        (work, &["--keep-sandbox"], 0, "run-finished"),
        (r#"{"type": "stop_failure", "reason": "no"}"#, &[], 1, "run-finished"),
        (r#"{"type": "run", "command": "false"}"#, &["--max-iterations", "1"], 3, "run-finished"),
        (r#"{"type": "pause", "reason": "a question"}"#, &[], 5, "paused"),
    ] {
        let fixture = RepoFixture::with_task();
        // Proofs have listeners of their own; no client uses them, and they are closed.
        fixture.config("config.toml", "[sandbox.network]\nallowed = ['y.test']\n");
        let answer = format!(
            r#"{{"json": {{"summary": "Some.", "actions": [{ask}, {then}], "claims": {{"checkboxes_checked": ["M1.1", "M1.2"], "milestones_completed": []}}}}}}"#
        );
        fixture.config("script.jsonl", &format!("{{\"format\": 1}}\n{answer}\n"));
        let output = fixture.ralph(&[&["run"], flags].concat());
        assert_eq!(output.code, code, "{then} {output}");
        let file = |name: &str| fs::read_to_string(run_folder(&fixture).join(name)).expect("a file");
        let kinds = |name: &str, key: &str| -> Vec<String> {
            let line = |line: &str| serde_json::from_str::<serde_json::Value>(line).expect("JSON")[key].clone();
            file(name).lines().map(|text| line(text).as_str().unwrap_or_default().to_owned()).collect()
        };
        assert_eq!(kinds("audit.jsonl", "kind"), ["decision", "closed"], "{then} {output}");
        let events = kinds("events.jsonl", "type");
        assert_eq!(events.last().map(String::as_str), Some(last), "{then} {events:?}");
        assert!(events.iter().any(|kind| kind == "audit-anchored"), "{then} {events:?}");
        let verified = fixture.ralph(&["audit", "verify", "@"]);
        assert_eq!((verified.code, verified.stderr.as_str()), (0, ""), "{then} {verified}");
        let json = fixture.ralph(&["audit", "verify", "@", "--json"]);
        let report: serde_json::Value = serde_json::from_str(&json.stdout).expect("JSON");
        assert_eq!((&report["lines"], &report["unanchored"]), (&2.into(), &0.into()), "{then}");
    }
}
