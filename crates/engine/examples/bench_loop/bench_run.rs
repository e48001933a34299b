//! Drives one real run in a temporary home: local backend, scripted model, an action that does nothing, no checks.
//!
//! Nothing is ever verified and nothing fails, so the loop score stays at 0.3 (nothing changes) and no gutter ends the
//! run: it continues until its iterations are used up.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use ralph_core::budget::Budget;
use ralph_core::env_vars::Env;
use ralph_core::event::{CommitIdentity, Event, EventLine, PinnedProfile, RunProfiles};
use ralph_core::gutter::LadderRung;
use ralph_core::policy::Policy;
use ralph_core::price::Price;
use ralph_core::run::RunState;
use ralph_core::task;
use ralph_engine::host_environment::HostContext;
use ralph_engine::run::{KeepSandbox, RunSpec, StopSignals, begin};
use ralph_engine::store::{AnnouncePhase, EventObserver, RalphHome};
use ralph_testkit::repo::TestRepo;

use crate::figures::{FigureTable, percentile};
use crate::large_files::LargeFiles;
use crate::machine_baseline::{FlushProbe, bare_command, ms};
use crate::process_usage::{self, FolderSize, ProcessUsage};
use crate::{BenchResult, GROWTH, MEMORY_GROWTH_MIB, SHARE_MS};

/// How many files the repository of a plain run has.
pub(crate) const SMALL_REPOSITORY_FILES: usize = 20;

/// The action of every iteration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BenchAction {
    /// A command that does nothing.
    Run,
    /// A file written with its existing content.
    Write,
}

impl BenchAction {
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Run => "a run whose every action is the command `true`",
            Self::Write => "a run whose every action writes progress.md as it is",
        }
    }

    fn action(self) -> serde_json::Value {
        match self {
            Self::Run => serde_json::json!({ "type": "run", "command": "true" }),
            Self::Write => {
                serde_json::json!({ "type": "write", "path": ".ralph/progress.md", "content": "next: nothing\n" })
            }
        }
    }
}

const TASK: &str = "---\ntask_id: bench-001\ntest_command: \"true\"\ntest_every: claim\nprotected_paths: [\"tests/\"]\n---\n\n\
    # Do nothing, often\n\n## Milestone M1: never\n\n- [ ] M1.1 A box nobody claims\n  - verify: `false`\n";

/// The measurements of one run.
#[derive(Debug)]
pub(crate) struct BenchRun {
    kind: BenchAction,
    iterations: u32,
    times: Vec<IterationTiming>,
    /// The time of each status of the clone, in ms.
    looks: Vec<f64>,
    planted: usize,
    grown: [FolderSize; 2],
    /// Kept until everything is measured: a file system that has to remove thousands of files is slow meanwhile.
    _folders: (TestRepo, tempfile::TempDir),
}

/// One iteration, times in ms.
#[derive(Debug, Clone, Default)]
struct IterationTiming {
    n: u32,
    whole: f64,
    /// From its start to the model's answer: reading the status and building the prompt.
    prompt: f64,
    /// The bare no-op command and a bare flush right before it, if measured.
    bare: Option<(f64, f64)>,
    resident_mib: f64,
    used: ProcessUsage,
}

/// Takes the time at the run's events; between them nothing of the bench runs.
struct TimingObserver {
    iterations: u32,
    seen: Arc<Mutex<TimingState>>,
}

struct TimingState {
    began: Instant,
    open: Option<IterationTiming>,
    done: Vec<IterationTiming>,
    flush: FlushProbe,
    sizes: Vec<PathBuf>,
    first: [FolderSize; 2],
    plant: Option<LargeFiles>,
    /// How many large files were in place for a prompt, over all iterations.
    planted: usize,
}

impl EventObserver for TimingObserver {
    fn on_event(&self, moment: AnnouncePhase, line: &EventLine) {
        if moment == AnnouncePhase::Before {
            return;
        }
        let now = Instant::now();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let since = now.duration_since(seen.began).as_secs_f64() * 1000.0;
        match &line.event {
            Event::IterationStarted { n, .. } => {
                seen.close(since);
                seen.open(*n, self.iterations);
            }
            Event::ModelCalled { .. } => {
                if let Some(open) = &mut seen.open {
                    open.prompt = since;
                }
                seen.planted += seen.plant.as_mut().map_or(0, LargeFiles::remove);
            }
            Event::RunFinished { .. } => seen.close(since),
            _ => (),
        }
    }
}

impl TimingState {
    fn close(&mut self, since: f64) {
        if let Some(open) = self.open.take() {
            self.done.push(IterationTiming { whole: since, ..open });
        }
    }

    fn open(&mut self, n: u32, iterations: u32) {
        let bare = windows(iterations).iter().any(|(_, from, to)| (*from..=*to).contains(&n)).then(|| {
            // A control that fails must not end the run; its zero would be seen in the table.
            (bare_command().unwrap_or(0.0), self.flush.time_append().unwrap_or(0.0))
        });
        if n == FIRST_SIZE {
            self.first = sizes(&self.sizes);
        }
        if let Some(plant) = &mut self.plant {
            plant.install(n);
        }
        let (resident_mib, used) = (process_usage::resident_mib(), process_usage::process_usage());
        self.open = Some(IterationTiming { n, bare, resident_mib, used, ..IterationTiming::default() });
        // Last, so that the measurements above belong to no iteration.
        self.began = Instant::now();
    }
}

/// From this iteration on, growth on disk is counted: the first ones also create one-time files.
const FIRST_SIZE: u32 = 15;
const FIRST_STEADY_ITERATION: u32 = 20;

/// The measured iterations: name, first, last.
fn windows(iterations: u32) -> [(&'static str, u32, u32); 3] {
    let middle = (iterations / 10).max(16);
    [
        ("iterations 1-10", 1, 10),
        ("around iteration 100", middle.saturating_sub(5), middle + 5),
        ("the last iterations", iterations - 10, iterations),
    ]
}

pub(crate) async fn drive(
    kind: BenchAction,
    iterations: u32,
    files: usize,
    large: Option<usize>,
) -> BenchResult<BenchRun> {
    let repo = TestRepo::new();
    for at in 0..files {
        let text = format!("pub fn f{at}() -> usize {{\n    {at}\n}}\n");
        repo.write(&format!("src/d{}/m{}/f{at}.rs", at % 23, at / 23 % 101), text);
    }
    repo.write("tests/check.sh", "exit 1\n");
    repo.write("ralph_task.md", TASK);
    repo.commit("first");
    let home = tempfile::tempdir()?;
    let script = home.path().join("script.jsonl");
    let answer = serde_json::json!({
        "summary": "Nothing to do, done.",
        "actions": [kind.action()],
        "claims": { "checkboxes_checked": [], "milestones_completed": [] },
    });
    let reply = serde_json::json!({ "json": answer, "repeat": true });
    std::fs::write(&script, format!("{{\"format\": 1}}\n{reply}\n"))?;
    #[expect(clippy::disallowed_methods, reason = "a bench is a program, and finds others where its caller does")]
    let path = std::env::var("PATH").unwrap_or_default();
    let env = Env::new([("PATH".to_owned(), path)]);
    let host = HostContext::open(RalphHome::new(home.path().join("state"), home.path().join("config")), env).await?;
    let seen = Arc::new(Mutex::new(TimingState {
        began: Instant::now(),
        open: None,
        done: Vec::new(),
        flush: FlushProbe::new(home.path())?,
        sizes: vec![host.home.runs_dir(), host.home.sandboxes_dir()],
        first: [FolderSize::default(); 2],
        plant: match large {
            Some(bytes) => Some(LargeFiles::new(host.home.runs_dir(), host.home.sandboxes_dir(), home.path(), bytes)?),
            None => None,
        },
        planted: 0,
    }));
    let watch = TimingObserver { iterations, seen: seen.clone() };
    let request = run_request(repo.path(), &script, iterations)?;
    let begun = begin(&host, request, Box::new(watch), StopSignals::default(), KeepSandbox::Always).await?;
    let mut runner = begun.runner;
    let state = runner.drive().await?.clone();
    if state.spent.iterations != iterations + 1 {
        return Err(format!("the run ended after {} iterations: {:?}", state.spent.iterations, state.status).into());
    }
    drop(runner);
    let looks = time_tree_status(&host, &state).await?;
    let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
    let last = sizes(&seen.sizes);
    let grown = [0, 1].map(|at| size_difference(last[at], seen.first[at]));
    let planted = seen.planted;
    let times = std::mem::take(&mut seen.done);
    Ok(BenchRun { kind, iterations, times, looks, planted, grown, _folders: (repo, home) })
}

/// Times the git status before a prompt, each time after one file was changed.
async fn time_tree_status(host: &HostContext, state: &RunState) -> BenchResult<Vec<f64>> {
    const TIMES: usize = 10;
    let Some(place) = &state.workplace else { return Ok(Vec::new()) };
    let sandbox = host.backend("local")?.open(&place.sandbox).await?;
    let mut times = Vec::new();
    for n in 0..TIMES {
        sandbox.write(Path::new("looked.txt"), format!("{n}\n").as_bytes(), None).await?;
        let began = Instant::now();
        ralph_engine::git::in_sandbox::read_status(&*sandbox, &state.started.start_commit, "").await?;
        times.push(ms(began));
    }
    Ok(times)
}

fn sizes(folders: &[PathBuf]) -> [FolderSize; 2] {
    [0, 1].map(|at| folders.get(at).map(|folder| process_usage::folder_size(folder)).unwrap_or_default())
}

fn size_difference(a: FolderSize, b: FolderSize) -> FolderSize {
    FolderSize {
        files: a.files.saturating_sub(b.files),
        bytes: a.bytes.saturating_sub(b.bytes),
        allocated: a.allocated.saturating_sub(b.allocated),
    }
}

fn run_request(repo: PathBuf, script: &Path, iterations: u32) -> BenchResult<RunSpec> {
    let default = PinnedProfile {
        name: "bench".to_owned(),
        model: format!("scripted/{}", script.display()),
        base_url: None,
        api_key_env: None,
        max_output_tokens: 2048,
        temperature: None,
        timeout_s: 60,
        price: Some(Price::per_mtok_usd(0.0, 0.0, None)),
        most_output: None,
        extra: BTreeMap::new(),
    };
    Ok(RunSpec {
        repo,
        source: TASK.to_owned(),
        task: task::parse(TASK)?,
        task_path: "ralph_task.md".to_owned(),
        base_branch: None,
        backend: "local".to_owned(),
        image: None,
        resources: ralph_core::event::PinnedResources::default(),
        toolchains: ralph_core::config::ToolchainSelection::default(),
        secret_grants: Vec::new(),
        agent: None,
        profiles: RunProfiles { default, fallback: None, doctor: None },
        // One more than is measured, so that the last measured one ends like all others.
        budget: Budget {
            iterations: iterations + 1,
            wall_ms: 24 * 3_600_000,
            cost: None,
            tokens: None,
            consecutive_gutter: u32::MAX,
        },
        policy: Policy::default(),
        identity: CommitIdentity { name: "bench".to_owned(), email: "bench@localhost".to_owned() },
        ladder: vec![LadderRung::Rotate],
        check_timeout_s: 60,
        command_timeout_s: 3600,
        alarm_after: None,
        baseline: false,
        include_dirty: false,
    })
}

impl BenchRun {
    fn window(&self, from: u32, to: u32) -> Vec<&IterationTiming> {
        self.times.iter().filter(|one| (from..=to).contains(&one.n)).collect()
    }

    /// Returns ralph's share of an iteration in the middle of a window: all of it less the command itself.
    fn share(&self, from: u32, to: u32) -> f64 {
        let window = self.window(from, to);
        let whole: Vec<f64> = window.iter().map(|one| one.whole).collect();
        let bare: Vec<f64> = window.iter().filter_map(|one| one.bare).map(|(command, _)| command).collect();
        let command = if self.kind == BenchAction::Run { percentile(&bare, 50) } else { 0.0 };
        (percentile(&whole, 50) - command).max(0.0)
    }

    pub(crate) fn median(&self) -> (f64, f64) {
        let of = |part: fn(&IterationTiming) -> f64| {
            let times: Vec<f64> = self.times.iter().skip(1).map(part).collect();
            percentile(&times, 50)
        };
        (of(|one| one.whole), of(|one| one.prompt))
    }

    /// Returns the median time of a git status of the clone, and how many large files were in place for a prompt.
    pub(crate) fn median_tree_status(&self) -> (f64, usize) {
        (percentile(&self.looks, 50), self.planted)
    }

    pub(crate) fn add_figures(&self, table: &mut FigureTable) {
        let windows = windows(self.iterations);
        for (name, from, to) in windows {
            let window = self.window(from, to);
            let whole: Vec<f64> = window.iter().map(|one| one.whole).collect();
            let (commands, flushes): (Vec<f64>, Vec<f64>) = window.iter().filter_map(|one| one.bare).unzip();
            if from == 1 {
                table.add("iteration 1, the whole of it", whole.first().copied().unwrap_or(0.0), "ms");
            }
            table.add(format!("{name}: the whole, p50"), percentile(&whole, 50), "ms");
            table.add(format!("{name}: the whole, p90"), percentile(&whole, 90), "ms");
            table.add(format!("{name}: bare `sh -c true`, p50"), percentile(&commands, 50), "ms");
            table.add(format!("{name}: bare fdatasync, p50"), percentile(&flushes, 50), "ms");
            table.add_with_target(format!("{name}: our share, p50"), self.share(from, to), SHARE_MS, "ms");
        }
        let [first, _, last] = windows.map(|(_, from, to)| self.share(from, to));
        table.add_with_target("our share, last against first", last / first.max(0.001), GROWTH, "x");
        self.add_usage_figures(table);
        let at = |n: u32| self.times.iter().find(|one| one.n == n).map_or(0.0, |one| one.resident_mib);
        table.add("memory at the last iteration", at(self.iterations), "MiB");
        let grown = at(self.iterations) - at(FIRST_STEADY_ITERATION);
        table.add_with_target(
            format!("memory, last iteration less iteration {FIRST_STEADY_ITERATION}"),
            grown,
            MEMORY_GROWTH_MIB,
            "MiB",
        );
    }

    fn add_usage_figures(&self, table: &mut FigureTable) {
        // Between the windows, where no control writes anything.
        let usage_at = |n: u32| self.times.iter().find(|one| one.n == n).map(|one| one.used).unwrap_or_default();
        let [_, middle, last] = windows(self.iterations);
        let (from, to) = (middle.2 + 2, last.1.saturating_sub(2));
        let (before, after) = (usage_at(from), usage_at(to));
        let spread = f64::from(to.saturating_sub(from).max(1));
        let each = |a: u64, b: u64| a.saturating_sub(b) as f64 / spread;
        let whole: Vec<f64> =
            self.times.iter().filter(|one| (from..=to).contains(&one.n)).map(|one| one.whole).collect();
        table.add("between the windows: the whole, p50", percentile(&whole, 50), "ms");
        table.add("between the windows: processor time, ours and git's", each(after.busy_ms, before.busy_ms), "ms");
        table.add("written per iteration, to files and pipes", each(after.passed, before.passed) / 1024.0, "KiB");
        table.add("written per iteration, to disk", each(after.stored, before.stored) / 1024.0, "KiB");
        table.add("calls of write per iteration", each(after.calls, before.calls), "");
        let counted = f64::from((self.iterations + 2).saturating_sub(FIRST_SIZE).max(1));
        for (name, size) in ["run folder", "sandbox"].iter().zip(self.grown) {
            table.add(format!("{name}: growth per iteration"), size.bytes as f64 / counted / 1024.0, "KiB");
            table.add(format!("{name}: growth on disk"), size.allocated as f64 / counted / 1024.0, "KiB");
            table.add(format!("{name}: new files and folders"), size.files as f64 / counted, "");
        }
    }
}
