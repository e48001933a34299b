//! Tests that a run folder of an older version can be read: every line, the state, and what a resume needs.
//!
//! The fixture is the run of `ralph demo` of version 0.1.0, with the user's home replaced in its paths.

use std::path::Path;

use ralph_core::decide_next_step::{self, RunStep};
use ralph_core::event::{Event, EventLine};
use ralph_core::run::{RunState, RunStatus};
use ralph_engine::store::{EventLog, RunFolder, SilentObserver, read_events};
use ralph_engine::{Error, receipt, run};
use tempfile::TempDir;

use super::run_fixture::RunFixture;

const RUN: &str = "d1w8j21tcdwy";
const EVENTS: &str = include_str!("fixtures/run-0.1/events.jsonl");

/// Creates a run folder with the first events and all other files of the fixture.
fn folder(dir: &Path, events: usize) -> RunFolder {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures/run-0.1");
    let folder = RunFolder::at(dir.join(RUN));
    std::fs::create_dir_all(folder.path()).unwrap();
    for file in ["conversation.jsonl", "proposals.json", "pull-request.md", "receipt.json", "task.md"] {
        std::fs::copy(fixture.join(file), folder.path().join(file)).unwrap();
    }
    let text: String = EVENTS.split_inclusive('\n').take(events).collect();
    std::fs::write(folder.events_path(), text).unwrap();
    folder
}

#[test]
fn every_line_round_trips_byte_for_byte() {
    for text in EVENTS.lines() {
        assert_eq!(EventLine::parse(text).unwrap().to_json(), text);
    }
}

#[test]
fn the_state_matches_the_older_versions() {
    let dir = TempDir::new().unwrap();
    let folder = folder(dir.path(), usize::MAX);
    let state = folder.state().unwrap();
    assert_eq!((state.id(), &state.status), (RUN, &RunStatus::Succeeded));
    assert_eq!((state.spent.iterations, state.commits, state.verified.len()), (9, 8, 3));
    assert_eq!((state.spent.cost.to_string().as_str(), state.spent.tokens), ("$0.02", 27_832));
    assert_eq!(state.pushed, state.imported);
    assert!(state.pull_request.is_some_and(|pull| pull.proved && pull.number == 1));
    let bytes = folder.read(&folder.receipt_path()).unwrap().unwrap();
    let receipt = receipt::read(&String::from_utf8(bytes).unwrap()).unwrap();
    assert_eq!(Some(receipt.body.commit.as_str()), state.pushed.as_deref());
    assert_eq!(run::read_proposals(&folder).unwrap().proposals.len(), 1);
}

/// A process of the older version may have died after any of its events.
#[test]
fn the_run_can_be_resumed_after_every_event() {
    let lines: Vec<EventLine> = EVENTS.lines().map(|text| EventLine::parse(text).unwrap()).collect();
    let mut state = RunState::begin(lines[0].clone()).unwrap();
    for line in &lines[1..] {
        state.apply(line).unwrap();
        let rests =
            matches!(line.event, Event::Paused { .. } | Event::ControlApplied { .. } | Event::RunFinished { .. });
        assert_eq!(decide_next_step::decide(&state) == RunStep::Rest, rests, "{line:?}");
    }
    let dir = TempDir::new().unwrap();
    let folder = folder(dir.path(), lines.len() / 2);
    let log = EventLog::open(&folder, Box::new(SilentObserver)).unwrap();
    assert_eq!(log.state().last_seq, (lines.len() / 2) as u64);
    assert_eq!(read_events(&folder.events_path(), RUN).unwrap().len(), lines.len() / 2);
}

#[tokio::test]
async fn a_resume_reads_the_run_before_it_refuses() {
    let fixture = RunFixture::new().await;
    let dir = TempDir::new().unwrap();
    let ended = folder(dir.path(), usize::MAX);
    let (announce, stops) = (Box::new(SilentObserver), run::StopSignals::default());
    let (raise, recreate) = (run::BudgetRaise::default(), run::RecreateSandbox::No);
    let refused = run::resume(&fixture.host, ended, raise, recreate, announce, stops, run::KeepSandbox::Always).await;
    assert!(matches!(refused, Err(Error::CannotResume { why, .. }) if why == "it has succeeded"));
}
