//! Tests listing runs by the summaries in their folders, also where a summary is missing, old or damaged.

use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use jiff::Timestamp;
use ralph_core::event::{Event, EventLine, EventLogLevel, RunStopReason};
use ralph_core::run::RunListing;
use ralph_engine::store::{EventLog, RalphHome, RunFolder, SilentObserver};
use serde_json::json;
use tempfile::TempDir;

const RUNS: u32 = 10_000;

const COMMIT: &str = "a8bf0123456789abcdef0123456789abcdef0123";

/// The events of every run here: made once, since there are ten thousand of them.
static HISTORY: LazyLock<String> = LazyLock::new(history);

fn home() -> (TempDir, RalphHome) {
    let dir = tempfile::tempdir().unwrap();
    let home = RalphHome::new(dir.path().join("state"), dir.path().join("config"));
    (dir, home)
}

/// The events of a run that paused.
fn history() -> String {
    let profile = json!({"name": "glm", "model": "zai/glm", "base_url": null, "api_key_env": null,
        "max_output_tokens": 2048, "temperature": null, "timeout_s": 60, "price": null, "extra": {}});
    let started = json!({"type": "run-started", "format": 1, "run": run_id(1), "ralph": "0.1.0", "task_id": "auth-007",
        "title": "Fix the login", "repo": "/home/ann/shop", "task_path": "ralph_task.md", "task_sha256": "1c89",
        "base_branch": "main", "base_commit": COMMIT, "start_commit": COMMIT, "branch": "ralph/auth-007/fix-the-login",
        "engine": "actions", "backend": "embedded", "image": null,
        "resources": {"memory": null, "cpus": null, "disk": null, "pids": 4096}, "toolchains": "auto",
        "profiles": {"default": profile, "fallback": null, "doctor": null},
        "budget": {"iterations": 30, "wall_ms": 7_200_000, "cost": 10_000_000, "tokens": null, "consecutive_gutter": 3},
        "test_command": "npm test", "test_every": "iteration", "check_timeout_s": 600,
        "boxes": [{"id": "M1.1", "text": "A login outlives a restart", "milestone": "M1", "proofs": ["true"]}],
        "protected_paths": [], "proof_files": [], "policy": {"mode": "deny", "allow": [], "deny": []},
        "commit_state": false, "min_changed_lines": 1, "ladder": ["rotate", "pause"],
        "identity": {"name": "ralph", "email": "ralph@localhost"},
        "pr": {"draft": true, "labels": [], "title_template": null, "body_template": null}, "baseline": true});
    let paused = Event::Paused { reason: RunStopReason::Asked, next: format!("ralph resume {}", run_id(1)) };
    [serde_json::from_value(started).unwrap(), paused]
        .into_iter()
        .zip(1..)
        .map(|(event, seq)| EventLine { seq, at: Timestamp::UNIX_EPOCH, passed_ms: None, event }.to_json() + "\n")
        .collect()
}

fn run_id(number: u32) -> String {
    format!("{number:012}")
}

/// Creates the folder of a run with its events and without a summary.
fn add_run(home: &RalphHome, id: &str) -> RunFolder {
    let folder = home.run_folder(id);
    fs::create_dir_all(folder.path()).unwrap();
    fs::write(folder.events_path(), HISTORY.as_str()).unwrap();
    folder
}

fn open(folder: &RunFolder) -> EventLog {
    EventLog::open(folder, Box::new(SilentObserver)).unwrap()
}

fn note(text: &'static str) -> Event {
    Event::Log { level: EventLogLevel::Info, text: text.into() }
}

/// Lists the only run of a home: its listing, and how many histories were folded.
fn list_one(home: &RalphHome) -> (RunListing, usize) {
    let mut list = home.list_runs().unwrap();
    assert_eq!(list.runs.len(), 1);
    (list.runs.remove(0).listing.unwrap(), list.folded)
}

#[test]
fn ten_thousand_runs_are_listed_without_folding_one() {
    let (_dir, home) = home();
    let first = add_run(&home, &run_id(0));
    let listing = first.listing().unwrap();
    let summary = fs::read(first.summary_path()).unwrap();
    for number in 1..RUNS {
        let folder = add_run(&home, &run_id(number));
        fs::write(folder.summary_path(), &summary).unwrap();
    }
    let list = home.list_runs().unwrap();
    assert_eq!((list.runs.len(), list.folded), (RUNS as usize, 0));
    assert!(list.runs.iter().all(|run| run.listing.as_ref().is_ok_and(|found| *found == listing)));
    assert!(list.runs.is_sorted_by_key(|run| run.folder.id()));
}

#[test]
fn a_summary_counts_only_for_the_events_it_was_made_from() {
    let (_dir, home) = home();
    let folder = add_run(&home, &run_id(1));
    let truth = RunListing::of(&folder.state().unwrap());
    // An old folder has none: it is folded once and has one from then on.
    assert_eq!(list_one(&home), (truth.clone(), 1));
    assert_eq!(list_one(&home), (truth.clone(), 0));
    for damaged in ["", "{", "{\"format\":1}", "null"] {
        fs::write(folder.summary_path(), damaged).unwrap();
        assert_eq!(list_one(&home), (truth.clone(), 1), "{damaged:?}");
    }
    let newer = fs::read_to_string(folder.summary_path()).unwrap().replacen("\"format\":1", "\"format\":2", 1);
    fs::write(folder.summary_path(), newer).unwrap();
    assert_eq!(list_one(&home), (truth.clone(), 1));
    // An event that is not in the summary.
    let state = folder.state().unwrap();
    let line = EventLine { seq: state.last_seq + 1, at: state.last_at, passed_ms: None, event: note("more") };
    append(&folder.events_path(), &format!("{}\n", line.to_json()));
    assert_eq!(list_one(&home).1, 1);
    assert_eq!(list_one(&home).1, 0);
    // Half a line is no event, and its file never matches a summary.
    append(&folder.events_path(), "{\"seq\":");
    assert_eq!(list_one(&home).1, 1);
    assert_eq!(list_one(&home).1, 1);
    fs::remove_file(folder.events_path()).unwrap();
    assert!(home.list_runs().unwrap().runs.is_empty());
}

#[test]
fn the_process_that_works_on_a_run_keeps_its_summary() {
    let (_dir, home) = home();
    let folder = add_run(&home, &run_id(1));
    let mut log = open(&folder);
    assert!(!folder.summary_path().exists());
    log.append(Event::Resumed { by: "a test".to_owned() }).unwrap();
    assert_eq!(list_one(&home), (RunListing::of(log.state()), 0));
    // While a process works on the run, a reader that has to fold does not write the file.
    log.append(note("between two changes of its status")).unwrap();
    assert_eq!(list_one(&home), (RunListing::of(log.state()), 1));
    assert_eq!(list_one(&home).1, 1);
    log.append(Event::Paused { reason: RunStopReason::Asked, next: "ralph resume".to_owned() }).unwrap();
    assert_eq!(list_one(&home), (RunListing::of(log.state()), 0));
    log.append(note("the last word")).unwrap();
    let last = RunListing::of(log.state());
    drop(log);
    assert_eq!(list_one(&home), (last, 0));
    // A run whose folder was removed stays removed.
    let log = open(&folder);
    fs::remove_dir_all(folder.path()).unwrap();
    drop(log);
    assert!(!folder.path().exists());
}

#[test]
fn a_branch_is_found_by_the_summary() {
    let (_dir, home) = home();
    let folder = add_run(&home, &run_id(1));
    let branch = folder.listing().unwrap().branch;
    // As long as the history it replaces but not valid: folding it would fail.
    fs::write(folder.events_path(), format!("{}\n", "x".repeat(history().len() - 1))).unwrap();
    assert_eq!(home.find(&branch).unwrap().id(), folder.id());
}

fn append(path: &Path, text: &str) {
    let mut all = fs::read(path).unwrap();
    all.extend_from_slice(text.as_bytes());
    fs::write(path, all).unwrap();
}
