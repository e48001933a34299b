//! Runs a run in its own process that can be killed: the fixtures, the runner process, and the results a run leaves
//! behind.
//!
//! Where it is killed is decided in `crash`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use ralph_core::budget::Budget;
use ralph_core::env_vars::Env;
use ralph_core::event::{
    CommitIdentity, Event, EventLine, IterationOutcome, ModelCallOutcome, PinnedProfile, RunProfiles,
};
use ralph_core::gutter::{IterationSample, LadderRung};
use ralph_core::money::MicroUsd;
use ralph_core::policy::{Policy, PolicyMode};
use ralph_core::price::Price;
use ralph_core::receipt::{ReceiptBody, ReceiptCheck, ReceiptModel};
use ralph_core::run::RunState;
use ralph_core::task;
use ralph_engine::host_environment::HostContext;
use ralph_engine::run::{BudgetRaise, KeepSandbox, RecreateSandbox, RunSpec, StopSignals, begin, resume};
use ralph_engine::store::{AnnouncePhase, EventObserver, RalphHome, RunFolder, read_events};
use ralph_testkit::repo::{TestRepo, hermetic_command};
use rustix::process::{Signal, getpid, kill_process};
use serde::{Deserialize, Serialize};

/// The variable that makes a test binary a runner; its value is a [`RunnerPlan`].
const PLAN_VARIABLE: &str = "RALPH_TEST_RUNNER";

/// The test that is the runner's `main`.
const RUNNER_TEST: &str = "crash::runner_process";

const TASK_FILE: &str = "ralph_task.md";

/// A task and the model's replies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CrashScenario {
    pub(crate) task: &'static str,
    pub(crate) script: &'static str,
}

/// When the runner kills itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum KillPoint {
    Never,
    /// Just before the event with this number is written.
    Before(u64),
    /// Just after it was written.
    After(u64),
}

impl KillPoint {
    /// Returns the same point in a history with this many additional events before it.
    pub(crate) fn later(self, events: u64) -> Self {
        match self {
            Self::Never => Self::Never,
            Self::Before(seq) => Self::Before(seq + events),
            Self::After(seq) => Self::After(seq + events),
        }
    }
}

/// What a runner process does.
#[derive(Debug, Serialize, Deserialize)]
struct RunnerPlan {
    root: PathBuf,
    /// The run to resume; `None` to begin one.
    run: Option<String>,
    kill: KillPoint,
}

/// Kills its own process with SIGKILL.
struct KillObserver(KillPoint);

impl EventObserver for KillObserver {
    fn on_event(&self, moment: AnnouncePhase, line: &EventLine) {
        let now = match (self.0, moment) {
            (KillPoint::Before(seq), AnnouncePhase::Before) | (KillPoint::After(seq), AnnouncePhase::After) => {
                seq == line.seq
            }
            _ => false,
        };
        if now {
            kill_process(getpid(), Signal::KILL).unwrap();
        }
    }
}

/// Executes the plan in the variable; without the variable it does nothing.
pub(crate) fn runner_process() {
    let Ok(plan) = std::env::var(PLAN_VARIABLE) else { return };
    let plan: RunnerPlan = serde_json::from_str(&plan).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let env = [("PATH", std::env::var("PATH").unwrap()), ("HOME", plan.root.join("home").display().to_string())];
        let env = Env::new(env.map(|(name, value)| (name.to_owned(), value)));
        let host = HostContext::open(home(&plan.root), env).await.unwrap();
        let announce = Box::new(KillObserver(plan.kill));
        let mut runner = match &plan.run {
            None => {
                begin(&host, run_request(&plan), announce, StopSignals::default(), KeepSandbox::Never)
                    .await
                    .unwrap()
                    .runner
            }
            Some(run) => {
                let folder = host.home.run_folder(run);
                let raise = BudgetRaise::default();
                resume(&host, folder, raise, RecreateSandbox::No, announce, StopSignals::default(), KeepSandbox::Never)
                    .await
                    .unwrap()
            }
        };
        runner.drive().await.unwrap();
    });
}

fn home(root: &Path) -> RalphHome {
    RalphHome::new(root.join("home/state"), root.join("home/config"))
}

fn run_request(plan: &RunnerPlan) -> RunSpec {
    let repo = plan.root.join("repo");
    let source = std::fs::read_to_string(repo.join(TASK_FILE)).unwrap();
    let profile = |name: &str, script: &str| PinnedProfile {
        name: name.to_owned(),
        model: format!("scripted/{}", plan.root.join("home").join(script).display()),
        base_url: None,
        api_key_env: None,
        max_output_tokens: 1000,
        temperature: None,
        timeout_s: 60,
        price: Some(Price::per_mtok_usd(3.0, 15.0, None)),
        most_output: None,
        extra: BTreeMap::new(),
    };
    // A helper profile exists if a test wrote its script.
    let helper = |name: &str| {
        let script = format!("{name}.jsonl");
        plan.root.join("home").join(&script).exists().then(|| profile(name, &script))
    };
    let (fallback, doctor) = (helper("fallback"), helper("doctor"));
    let ladder = match doctor {
        Some(_) => ralph_core::gutter::DEFAULT_LADDER.to_vec(),
        None => vec![LadderRung::Rotate, LadderRung::Fallback, LadderRung::Pause],
    };
    RunSpec {
        repo,
        task: task::parse(&source).unwrap(),
        source,
        task_path: TASK_FILE.to_owned(),
        base_branch: None,
        backend: "local".to_owned(),
        image: None,
        resources: ralph_core::event::PinnedResources::default(),
        toolchains: ralph_core::config::ToolchainSelection::default(),
        secret_grants: Vec::new(),
        agent: None,
        profiles: RunProfiles { default: profile("scripted", "script.jsonl"), fallback, doctor },
        budget: Budget {
            iterations: 8,
            wall_ms: 3_600_000,
            cost: Some(MicroUsd(5_000_000)),
            tokens: Some(1_000_000),
            consecutive_gutter: 3,
        },
        policy: Policy::parse::<&str>(PolicyMode::Deny, &[], &[]).unwrap(),
        identity: CommitIdentity { name: "ralph".to_owned(), email: "ralph@localhost".to_owned() },
        ladder,
        check_timeout_s: 60,
        command_timeout_s: 3600,
        alarm_after: None,
        baseline: true,
        include_dirty: false,
    }
}

/// Where the branch is published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PushTarget {
    /// The user's own repository.
    Here,
    /// A bare repository configured as its remote.
    Remote,
}

/// One run of a scenario in its own home, from its beginning to its end.
#[derive(Debug)]
pub(crate) struct KillableRun {
    repo: TestRepo,
    push_target: PushTarget,
    /// How many runner processes were killed.
    pub(crate) kills: u32,
}

/// How a runner process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunnerEnding {
    Killed,
    ByItself,
}

impl KillableRun {
    pub(crate) fn new(scenario: CrashScenario, hand_over: PushTarget) -> Self {
        let tests = [
            // Slow enough to be hit, and it leaves a trace: if it is started twice, there must still be one.
            ("tests/all.sh", "sleep 0.1\necho ran >> checks.log\ntest ! -e broken\n"),
            ("tests/two.sh", "grep -q two a.txt || { echo 'there is no two' >&2; exit 1; }\n"),
            ("tests/three.sh", "grep -q three c.txt\n"),
            ("a.txt", "zero\n"),
        ];
        Self::with(&tests, scenario.task, scenario.script, hand_over)
    }

    /// The same with a repository of these files.
    pub(crate) fn with(files: &[(&str, &str)], task: &str, script: &str, push_target: PushTarget) -> Self {
        let repo = TestRepo::new();
        for (path, text) in files {
            repo.write(path, text);
        }
        repo.write(TASK_FILE, task);
        repo.commit("the beginning");
        if push_target == PushTarget::Remote {
            let remote = remote(&repo);
            repo.git(["init", "--quiet", "--bare", &remote]);
            repo.git(["--git-dir", &remote, "config", "core.logAllRefUpdates", "always"]);
            repo.git(["remote", "add", "origin", &remote]);
            repo.git(["push", "--quiet", "origin", "main"]);
        }
        std::fs::write(repo.home().join("script.jsonl"), script).unwrap();
        Self { repo, push_target, kills: 0 }
    }

    /// Gives the run another profile, `fallback` or `doctor`, with this script.
    pub(crate) fn helper(&self, name: &str, script: &str) {
        std::fs::write(self.repo.home().join(format!("{name}.jsonl")), script).unwrap();
    }

    /// Runs a runner process that may kill itself, to its end.
    pub(crate) fn run(&mut self, kill: KillPoint) -> RunnerEnding {
        let child = self.launch(kill);
        self.wait_for(child)
    }

    /// Runs a runner process and kills it some time after the event with this number, unless it was faster.
    pub(crate) fn run_into(&mut self, seq: u64, delay: Duration) -> RunnerEnding {
        let mut child = self.launch(KillPoint::Never);
        let alive = |child: &mut Child| child.try_wait().unwrap().is_none();
        while self.event_count() < seq && alive(&mut child) {
            std::thread::sleep(Duration::from_millis(1));
        }
        // This sleep does not wait for anything: the delay is what is tested.
        std::thread::sleep(delay);
        child.kill().unwrap();
        self.wait_for(child)
    }

    /// Resumes until the run rests, without further kills.
    pub(crate) fn go_on(&mut self) {
        while self.state().is_none_or(|state| state.status.is_active()) {
            assert_eq!(self.run(KillPoint::Never), RunnerEnding::ByItself, "it is not killed");
        }
    }

    /// Returns the run's specification, for a runner in this process.
    pub(crate) fn run_request(&self) -> RunSpec {
        run_request(&RunnerPlan { root: self.root(), run: None, kill: KillPoint::Never })
    }

    fn launch(&self, kill: KillPoint) -> Child {
        let plan = RunnerPlan { root: self.root(), run: self.folder().map(|folder| folder.id()), kill };
        let mut command = hermetic_command(std::env::current_exe().unwrap().to_str().unwrap(), &self.repo.home());
        command.args(["--exact", RUNNER_TEST, "--nocapture"]).env(PLAN_VARIABLE, serde_json::to_string(&plan).unwrap());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    }

    fn wait_for(&mut self, child: Child) -> RunnerEnding {
        use std::os::unix::process::ExitStatusExt as _;
        let output = child.wait_with_output().unwrap();
        if output.status.signal() == Some(Signal::KILL.as_raw()) {
            self.kills += 1;
            return RunnerEnding::Killed;
        }
        assert!(output.status.success(), "{}\n{}", String::from_utf8_lossy(&output.stderr), self.event_text());
        RunnerEnding::ByItself
    }

    /// Makes the remote run a program on a push.
    pub(crate) fn remote_hook(&self, name: &str, text: &str) {
        use std::os::unix::fs::PermissionsExt as _;
        let path = Path::new(&remote(&self.repo)).join("hooks").join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn root(&self) -> PathBuf {
        self.repo.path().parent().unwrap().to_owned()
    }

    pub(crate) fn home(&self) -> RalphHome {
        home(&self.root())
    }

    /// Returns the folder of the run, once it has begun.
    pub(crate) fn folder(&self) -> Option<RunFolder> {
        let ids = self.home().run_ids().unwrap();
        assert!(ids.len() <= 1, "a run that never began is not listed: {ids:?}");
        ids.first().map(|id| self.home().run_folder(id))
    }

    pub(crate) fn state(&self) -> Option<RunState> {
        self.folder().map(|folder| folder.state().unwrap())
    }

    pub(crate) fn lines(&self) -> Vec<EventLine> {
        self.folder().map_or_else(Vec::new, |folder| read_events(&folder.events_path(), &folder.id()).unwrap())
    }

    /// Returns how many events are written, without parsing them: a test asks often.
    fn event_count(&self) -> u64 {
        let text = self.folder().and_then(|folder| std::fs::read(folder.events_path()).ok()).unwrap_or_default();
        text.split(|byte| *byte == b'\n').count().saturating_sub(1) as u64
    }

    /// Returns how many events say that the run was resumed once the next process has started: a run that was killed
    /// before its first event is begun anew.
    pub(crate) fn resumes_after_start(&self) -> u64 {
        let resumed = self.lines().iter().filter(|line| matches!(line.event, Event::Resumed { .. })).count() as u64;
        resumed + u64::from(self.folder().is_some())
    }

    /// Returns the whole history, to inspect a failure.
    pub(crate) fn event_text(&self) -> String {
        self.lines().iter().map(|line| line.to_json().chars().take(400).collect::<String>() + "\n").collect()
    }

    fn git(&self, args: &[&str]) -> String {
        match self.push_target {
            PushTarget::Here => self.repo.git(args),
            PushTarget::Remote => self.repo.git(["--git-dir", &remote(&self.repo)].iter().chain(args)),
        }
    }

    /// Collects everything that must not depend on whether the run was disturbed.
    pub(crate) fn outcome(&self) -> RunResult {
        let (folder, state, lines) = (self.folder().unwrap(), self.state().unwrap(), self.lines());
        let branch = state.pushed.as_ref().map(|pushed| {
            let name = &state.started.branch;
            assert_eq!(
                self.git(&["rev-parse", &format!("refs/heads/{name}")]),
                pushed.as_str(),
                "the pushed commit is there"
            );
            PushedBranch {
                tree: self.git(&["rev-parse", &format!("{name}^{{tree}}")]),
                files: self.git(&["ls-tree", "-r", "--name-only", name]).lines().map(str::to_owned).collect(),
                subjects: self.git(&["log", "--format=%s", name]).lines().map(str::to_owned).collect(),
                task: self.git(&["show", &format!("{name}:{TASK_FILE}")]),
                steps: self.git(&["show", &format!("{name}:steps.txt")]),
                // The remote's own reflog: a second push of the same commit would not be in it, a third commit would.
                times: self.git(&["reflog", "show", "--format=%H", &format!("refs/heads/{name}")]).lines().count(),
            }
        });
        let mirror = |name: &str| std::fs::read_to_string(folder.mirror(name)).unwrap_or_default();
        RunResult {
            status: format!("{:?}", state.status).replace(&folder.id(), "RUN"),
            exit: format!("{:?}", state.exit()),
            commits: state.commits,
            branch,
            cost: state.spent.cost,
            tokens: state.spent.tokens,
            iterations: state.spent.iterations,
            calls: lines.iter().filter_map(|line| call(&line.event)).collect(),
            ended: lines.iter().filter_map(|line| ended(&line.event)).collect(),
            opened: lines.iter().filter(|line| matches!(line.event, Event::PrOpened { .. })).count(),
            pull_requests: names(folder.path()).iter().filter(|name| name.contains("pull-request")).count(),
            pushed: lines.iter().filter_map(|line| pushed(&line.event)).collect::<BTreeSet<_>>().len(),
            receipt: receipt(&folder, &state),
            guardrails: mirror("guardrails.md"),
            errors: mirror("errors.log"),
            activity: without_times(&mirror("activity.log")),
        }
    }

    /// Checks that nothing is left over.
    pub(crate) fn assert_tidy(&self) {
        let state = self.state().unwrap();
        for (before, line) in self.lines().iter().enumerate() {
            assert_eq!(line.seq, before as u64 + 1, "no gap in the events");
        }
        let sandboxes = names(&self.home().sandboxes_dir());
        let sandboxes: Vec<&String> = sandboxes.iter().filter(|name| !name.starts_with('.')).collect();
        let work = state.workplace.as_ref().map(|place| &place.sandbox);
        let want: Vec<&String> = if state.exit() == ralph_core::exit_code::RalphExitCode::Success {
            vec![]
        } else {
            work.into_iter().collect()
        };
        assert_eq!(sandboxes, want, "no sandbox is left over");
        let folder = self.folder().unwrap();
        let objects = names(&folder.bare_path().join("objects"));
        assert!(!objects.iter().any(|name| name.starts_with("incoming-")), "no quarantine: {objects:?}");
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            // A process that was just killed may need a moment to disappear.
            let left = processes(&self.root());
            if left.is_empty() {
                break;
            }
            assert!(Instant::now() < until, "processes are left: {left:?}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// The result of a run: the same whether or not it was disturbed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RunResult {
    pub(crate) status: String,
    exit: String,
    commits: u32,
    pub(crate) branch: Option<PushedBranch>,
    cost: MicroUsd,
    tokens: u64,
    iterations: u32,
    /// Every model call that was charged.
    calls: Vec<(u32, u32, &'static str, MicroUsd)>,
    /// Every iteration as it ended.
    ended: Vec<(u32, IterationOutcome, String, IterationSample, Vec<String>)>,
    pub(crate) opened: usize,
    pub(crate) pull_requests: usize,
    /// Distinct commits that were pushed.
    pub(crate) pushed: usize,
    pub(crate) receipt: Option<ReceiptBody>,
    pub(crate) guardrails: String,
    errors: String,
    activity: String,
}

impl RunResult {
    /// Drops the texts for users and the model.
    pub(crate) fn without_texts(self) -> Self {
        Self { ended: Vec::new(), errors: String::new(), activity: String::new(), ..self }
    }
}

/// The branch where it was published.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct PushedBranch {
    tree: String,
    pub(crate) files: Vec<String>,
    pub(crate) subjects: Vec<String>,
    pub(crate) task: String,
    pub(crate) steps: String,
    pub(crate) times: usize,
}

fn remote(repo: &TestRepo) -> String {
    repo.home().join("remote.git").display().to_string()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn call(event: &Event) -> Option<(u32, u32, &'static str, MicroUsd)> {
    let Event::ModelCalled { n, call, answer, cost, .. } = event else { return None };
    let answer = match answer {
        ModelCallOutcome::Actions { .. } => "actions",
        ModelCallOutcome::Diagnosis { .. } => "diagnosis",
        ModelCallOutcome::Invalid { .. } => "invalid",
        ModelCallOutcome::Lost => "lost",
        ModelCallOutcome::Through { .. } => "through",
    };
    Some((*n, *call, answer, *cost))
}

fn ended(event: &Event) -> Option<(u32, IterationOutcome, String, IterationSample, Vec<String>)> {
    let Event::IterationFinished { n, outcome, summary, sample, verified, .. } = event else { return None };
    Some((*n, *outcome, summary.to_string(), sample.clone(), verified.clone()))
}

fn pushed(event: &Event) -> Option<&str> {
    let Event::Pushed { sha, .. } = event else { return None };
    Some(sha)
}

/// Reads the receipt, checks its signature, and blanks what differs in every run.
fn receipt(folder: &RunFolder, state: &RunState) -> Option<ReceiptBody> {
    let text = std::fs::read_to_string(folder.receipt_path()).ok()?;
    let body = ralph_engine::receipt::read(&text).expect("its signature is valid").body;
    assert_eq!((Some(body.commit.as_str()), body.run.as_str()), (state.pushed.as_deref(), state.id()));
    let checks = body.checks.into_iter().map(|check| ReceiptCheck { duration_ms: 0, ..check }).collect();
    let blank = String::new;
    let spent: MicroUsd = body.models.iter().map(|used| used.cost_micro_usd).sum();
    assert_eq!(Some(spent), body.cost_micro_usd, "every call is some model's");
    let models = body.models.into_iter().map(|used| ReceiptModel { model: blank(), ..used }).collect();
    Some(ReceiptBody { run: blank(), commit: blank(), models, checks, ..body })
}

/// Removes durations.
fn without_times(text: &str) -> String {
    let line = |line: &str| match line.strip_suffix(" ms").and_then(|line| line.rsplit_once(' ')) {
        Some((line, _)) => format!("{line} _ ms\n"),
        None => format!("{line}\n"),
    };
    text.lines().map(line).collect()
}

/// Returns the processes whose environment names this folder.
fn processes(root: &Path) -> Vec<String> {
    let root = root.display().to_string();
    let mut found = Vec::new();
    for pid in names(Path::new("/proc")).into_iter().filter(|name| name.bytes().all(|byte| byte.is_ascii_digit())) {
        let environ = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        if String::from_utf8_lossy(&environ).contains(&root) {
            let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            found.push(format!("{pid} {}", String::from_utf8_lossy(&command).replace('\0', " ")));
        }
    }
    found
}
