//! Measures folding the state of a run from an event file of a hundred thousand events.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::time::Instant;

use jiff::{SignedDuration, Timestamp};
use ralph_core::commit_sha::CommitSha;
use ralph_core::event::{
    ActionOutcome, CheckStage, CommitIdentity, Event, EventLine, EventLogLevel, IterationOutcome, ModelCallOutcome,
    PinnedBox, PinnedProfile, PinnedPullRequest, PreActionState, ReviewFinding, RunProfiles, RunStart, RunTestSchedule,
};
use ralph_core::gutter::{FailureSignature, IterationSample, LoopScore, TestCounts};
use ralph_core::hash::sha256;
use ralph_core::identifiers::TaskBranch;
use ralph_core::money::MicroUsd;
use ralph_core::price::TokenUsage;
use ralph_core::redact::Redactor;
use ralph_engine::store::RunFolder;

use crate::figures::{FigureTable, percentile};
use crate::machine_baseline::ms;
use crate::process_usage;
use crate::{BenchResult, FOLD_MS};

pub(crate) const EVENTS: u64 = 100_000;
const TIMES: usize = 7;

pub(crate) fn measure(table: &mut FigureTable) -> BenchResult<()> {
    let dir = tempfile::tempdir()?;
    let folder = RunFolder::at(dir.path().to_owned());
    let text = history(EVENTS);
    table.add("size of the event file", text.len() as f64 / 1024.0 / 1024.0, "MiB");
    fs::write(folder.events_path(), text)?;
    let before = process_usage::resident_mib();
    let mut times = Vec::new();
    for _ in 0..TIMES {
        let began = Instant::now();
        let state = folder.state()?;
        times.push(ms(began));
        if state.last_seq != EVENTS {
            return Err(format!("{} events were folded instead of {EVENTS}", state.last_seq).into());
        }
    }
    table.add_with_target("fold of 100 000 events, p50", percentile(&times, 50), FOLD_MS, "ms");
    table.add("fold of 100 000 events, the slowest", percentile(&times, 100), "ms");
    table.add("memory grown by it", process_usage::resident_mib() - before, "MiB");
    Ok(())
}

/// Writes the events of a run of a few iterations.
pub(crate) fn short_history() -> String {
    history(50)
}

/// Writes the events of a run: answers, edits, commands, checks, commits and a log line in between.
fn history(events: u64) -> String {
    let mut out = String::new();
    let mut at = Timestamp::UNIX_EPOCH + SignedDuration::from_hours(24 * 365 * 56);
    let mut seq = 0;
    let mut write = |event: Event| {
        seq += 1;
        at += SignedDuration::from_millis(137);
        writeln!(out, "{}", EventLine { seq, at, passed_ms: None, event }.to_json())
            .expect("writing to a String cannot fail");
        seq < events
    };
    let start = sha("start");
    write(Event::RunStarted(Box::new(started(&start))));
    write(Event::SandboxReady {
        sandbox: "ralph-actions-bench-1".to_owned(),
        backend: "local".to_owned(),
        isolated: false,
        start: commit(&start),
        head: commit(&start),
        reclaim: Vec::new(),
        verified: Vec::new(),
    });
    let mut n = 0;
    loop {
        n += 1;
        if !iteration(n).into_iter().all(&mut write) {
            return out;
        }
    }
}

fn iteration(n: u32) -> Vec<Event> {
    let (head, tree) = (sha(&format!("head {n}")), sha(&format!("tree {n}")));
    let profile = "bench".to_owned();
    let usage = TokenUsage { input: 9_000 + u64::from(n % 700), output: 640, ..TokenUsage::default() };
    let answer = ModelCallOutcome::Actions { count: 3, response: sha256(n.to_string().as_bytes()) };
    let mut events = vec![
        Event::IterationStarted { n, profile: profile.clone(), because: None, head: head.clone(), tree: tree.clone() },
        Event::ModelCalled {
            n,
            call: 0,
            profile,
            model: "provider/model-large".to_owned(),
            answer,
            usage,
            cost: MicroUsd(31_000),
            duration_ms: 8_211,
        },
    ];
    let path = format!("src/module_{}/part_{}.rs", n % 17, n % 5);
    let file = PreActionState::File { path: path.clone(), before: Some(sha256(b"a")), after: sha256(b"b") };
    let whole = PreActionState::Tree { head: head.clone(), tree, index: None };
    let redactor = Redactor::new([]);
    let actions = [
        ("patch", format!("patch {path}"), file, ActionOutcome::Ok, None, format!("{path}: 2113 bytes")),
        (
            "run",
            "cargo test -p thing --quiet".to_owned(),
            whole.clone(),
            ActionOutcome::Ok,
            Some(0),
            "exit 0: ok".to_owned(),
        ),
        ("commit", "thing: handle the empty case".to_owned(), whole, ActionOutcome::Ok, None, "1f3c9a2b44".to_owned()),
    ];
    for (index, (kind, brief, before, outcome, code, detail)) in (0..).zip(actions) {
        let (brief, detail) = (redactor.mask(&brief), redactor.mask(&detail));
        events.push(Event::ActionStarted { n, index, kind: kind.to_owned().into(), brief, before });
        events.push(Event::ActionFinished { n, index, outcome, code, duration_ms: 412, detail });
    }
    for (command, proves) in [("cargo test --quiet", "test"), ("sh tests/check.sh", "M1.1")] {
        events.push(Event::CheckFinished {
            n,
            stage: CheckStage::Iteration,
            command: command.to_owned(),
            proves: vec![proves.into()],
            code: 1,
            timed_out: false,
            duration_ms: 2_119,
            files: ralph_core::proof_files::ProofFileChanges::default(),
            output: sha256(command.as_bytes()),
        });
    }
    if n.is_multiple_of(3) {
        let finding = ReviewFinding {
            rule: "workflow".to_owned(),
            path: ".github/workflows/ci.yml".to_owned(),
            detail: "a workflow was changed".to_owned(),
            stop: false,
        };
        events.push(Event::CommitImported { n, sha: Some(commit(&head)), commits: n / 3, findings: vec![finding] });
        events.push(Event::Log {
            level: EventLogLevel::Warn,
            text: "protected paths were put back: tests/check.sh".into(),
        });
    }
    let sample = IterationSample {
        n,
        failures: vec![FailureSignature::of("cargo test --quiet", 101, "error[E0308]: mismatched types in part 3")],
        changed_lines: 42,
        files: (0..4).map(|at| (format!("src/file_{at}.rs"), sha(&format!("{n} {at}")))).collect(),
        newly_verified: 0,
        tests: Some(TestCounts { passed: 311, failed: 2 }),
        waiting: false,
    };
    let score = LoopScore {
        total: 0.5,
        a: 0.5,
        evidence: vec!["A 0.5: `cargo test` failed with exit code 101 and the same error in 3 of 5".to_owned()],
        ..LoopScore::default()
    };
    let summary = "Handle the empty case in the reader and test it; the writer comes next.".into();
    let verified = vec!["M1.1".to_owned(), "M1.2".to_owned()];
    let (outcome, broken) = (IterationOutcome::Progress, Vec::new());
    events.push(Event::IterationFinished { n, outcome, head, summary, sample, verified, broken });
    events.push(Event::GutterScored { n, score });
    events
}

fn sha(of: &str) -> String {
    sha256(of.as_bytes()).get(..40).unwrap_or_default().to_owned()
}

fn commit(sha: &str) -> CommitSha {
    CommitSha::parse(sha).expect("it is a hash")
}

fn started(start: &str) -> RunStart {
    let default = PinnedProfile {
        name: "bench".to_owned(),
        model: "provider/model-large".to_owned(),
        base_url: None,
        api_key_env: Some("PROVIDER_API_KEY".to_owned()),
        max_output_tokens: 8192,
        temperature: None,
        timeout_s: 600,
        price: None,
        most_output: None,
        extra: BTreeMap::new(),
    };
    let boxes = (1..=12).map(|at| PinnedBox {
        id: format!("M1.{at}"),
        text: format!("The {at}th thing holds"),
        milestone: Some("M1: all of it".to_owned()),
        proofs: vec![format!("sh tests/check.sh {at}")],
    });
    RunStart {
        format: ralph_core::event::FORMAT,
        run: "bench".to_owned(),
        ralph: env!("CARGO_PKG_VERSION").to_owned(),
        task_id: "bench-001".to_owned(),
        title: "A long run".to_owned(),
        repo: "/repo".to_owned(),
        task_path: "ralph_task.md".to_owned(),
        task_sha256: sha256(b"task"),
        base_branch: "main".to_owned(),
        base_commit: commit(start),
        start_commit: commit(start),
        branch: TaskBranch::parse("ralph/bench-001/long").expect("a legal name"),
        engine: "actions".to_owned(),
        agent: None,
        backend: "local".to_owned(),
        image: None,
        resources: ralph_core::event::PinnedResources::default(),
        toolchains: ralph_core::config::ToolchainSelection::default(),
        lent: Vec::new(),
        profiles: RunProfiles { default, fallback: None, doctor: None },
        budget: ralph_core::budget::Budget {
            iterations: u32::MAX,
            wall_ms: u64::MAX,
            cost: None,
            tokens: None,
            consecutive_gutter: 3,
        },
        gates: Vec::new(),
        to_be_written: BTreeMap::new(),
        test_command: "cargo test --quiet".to_owned(),
        test_every: RunTestSchedule::Iteration,
        check_timeout_s: 600,
        command_timeout_s: None,
        alarm_after: None,
        boxes: boxes.collect(),
        protected_paths: vec!["tests/".to_owned()],
        may_change: Vec::new(),
        proof_files: vec!["tests/check.sh".to_owned()],
        pinned_parts: Vec::new(),
        policy: ralph_core::policy::Policy::default(),
        commit_state: false,
        min_changed_lines: 1,
        ladder: ralph_core::gutter::DEFAULT_LADDER.to_vec(),
        diagnose: ralph_core::task::DiagnoseSettings::default(),
        identity: CommitIdentity { name: "ralph".to_owned(), email: "ralph@localhost".to_owned() },
        pr: PinnedPullRequest::default(),
        baseline: false,
        recovered: false,
        carried: ralph_core::event::CarriedUsage::default(),
    }
}
