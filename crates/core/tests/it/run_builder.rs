//! Builds the history of a run event by event, so that a test reads like a sequence of events.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use ralph_core::budget::Budget;
use ralph_core::commit_sha::CommitSha;
use ralph_core::decide_next_step::{self, RunStep};
use ralph_core::event::{
    ActionOutcome, CarriedUsage, CheckStage, CommitIdentity, Event, EventLine, FORMAT, IterationOutcome,
    ModelCallOutcome, PinnedBox, PinnedProfile, PinnedPullRequest, PreActionState, RunProfiles, RunStart,
    RunTestSchedule,
};
use ralph_core::gutter::{IterationSample, LadderRung, LoopScore};
use ralph_core::identifiers::TaskBranch;
use ralph_core::money::MicroUsd;
use ralph_core::policy::{Policy, PolicyMode};
use ralph_core::price::TokenUsage;
use ralph_core::run::RunState;

pub(crate) struct RunBuilder {
    pub(crate) lines: Vec<EventLine>,
    pub(crate) state: RunState,
    ms: i64,
}

pub(crate) fn profile(name: &str) -> PinnedProfile {
    PinnedProfile {
        name: name.to_owned(),
        model: format!("scripted/{name}"),
        base_url: None,
        api_key_env: None,
        max_output_tokens: 100,
        temperature: None,
        timeout_s: 10,
        price: None,
        most_output: None,
        extra: BTreeMap::new(),
    }
}

pub(crate) fn started() -> RunStart {
    let pinned = |id: &str, milestone: &str, proof: &str| PinnedBox {
        id: id.to_owned(),
        text: format!("box {id}"),
        milestone: Some(milestone.to_owned()),
        proofs: vec![proof.to_owned()],
    };
    RunStart {
        format: FORMAT,
        run: "r1".to_owned(),
        ralph: "0.1.0".to_owned(),
        task_id: "t1".to_owned(),
        title: "Title".to_owned(),
        repo: "/repo".to_owned(),
        task_path: "ralph_task.md".to_owned(),
        task_sha256: String::new(),
        base_branch: "main".to_owned(),
        base_commit: commit("base"),
        start_commit: commit("start"),
        branch: TaskBranch::parse("ralph/t1/title").unwrap(),
        engine: "actions".to_owned(),
        agent: None,
        backend: "local".to_owned(),
        image: None,
        resources: ralph_core::event::PinnedResources::default(),
        toolchains: ralph_core::config::ToolchainSelection::default(),
        lent: Vec::new(),
        profiles: RunProfiles { default: profile("cheap"), fallback: Some(profile("strong")), doctor: None },
        budget: Budget {
            iterations: 3,
            wall_ms: 60_000,
            cost: Some(MicroUsd(1000)),
            tokens: None,
            consecutive_gutter: 3,
        },
        gates: Vec::new(),
        to_be_written: BTreeMap::new(),
        test_command: "test".to_owned(),
        test_every: RunTestSchedule::Iteration,
        check_timeout_s: 60,
        command_timeout_s: None,
        alarm_after: None,
        boxes: vec![pinned("M1.1", "M1 one", "p1"), pinned("M2.1", "M2 two", "p2")],
        protected_paths: Vec::new(),
        may_change: Vec::new(),
        proof_files: Vec::new(),
        pinned_parts: Vec::new(),
        policy: Policy::parse::<&str>(PolicyMode::Deny, &[], &[]).unwrap(),
        commit_state: false,
        min_changed_lines: 1,
        ladder: vec![LadderRung::Rotate, LadderRung::Fallback, LadderRung::Pause],
        diagnose: ralph_core::task::DiagnoseSettings::default(),
        identity: CommitIdentity { name: "ralph".to_owned(), email: "r@localhost".to_owned() },
        pr: PinnedPullRequest::default(),
        baseline: false,
        recovered: false,
        carried: CarriedUsage::default(),
    }
}

impl RunBuilder {
    pub(crate) fn new() -> Self {
        Self::with(started())
    }

    pub(crate) fn with(started: RunStart) -> Self {
        let line = EventLine {
            seq: 1,
            at: Timestamp::from_millisecond(0).unwrap(),
            passed_ms: None,
            event: Event::RunStarted(Box::new(started)),
        };
        Self { state: RunState::begin(line.clone()).unwrap(), lines: vec![line], ms: 0 }
    }

    /// Adds an event that happened `ms` after the previous one.
    pub(crate) fn after(mut self, ms: i64, event: Event) -> Self {
        self.ms += ms;
        let at = Timestamp::from_millisecond(self.ms).unwrap();
        let line = EventLine { seq: self.state.last_seq + 1, at, passed_ms: None, event };
        self.state.apply(&line).unwrap();
        self.lines.push(line);
        self
    }

    pub(crate) fn then(self, event: Event) -> Self {
        self.after(10, event)
    }

    /// Returns a run whose sandbox is ready.
    pub(crate) fn ready() -> Self {
        Self::new().then(sandbox_ready("start", &[]))
    }

    pub(crate) fn next(&self) -> RunStep {
        decide_next_step::decide(&self.state)
    }

    pub(crate) fn starts(self, n: u32) -> Self {
        self.then(Event::IterationStarted {
            n,
            profile: "cheap".to_owned(),
            because: None,
            head: "h".to_owned(),
            tree: "t".to_owned(),
        })
    }

    pub(crate) fn called(self, call: u32, answer: ModelCallOutcome, cost: u64) -> Self {
        let n = self.state.open.as_ref().map_or(0, |open| open.n);
        self.then(Event::ModelCalled {
            n,
            call,
            profile: "cheap".to_owned(),
            model: "m".to_owned(),
            answer,
            usage: TokenUsage { input: 10, output: 5, ..TokenUsage::default() },
            cost: MicroUsd(cost),
            duration_ms: 1,
        })
    }

    pub(crate) fn answers(self, count: u32) -> Self {
        self.called(0, ModelCallOutcome::Actions { count, response: "sha".to_owned() }, 100)
    }

    pub(crate) fn begins(self, index: u32, kind: &str) -> Self {
        let n = self.state.open.as_ref().map_or(0, |open| open.n);
        self.then(Event::ActionStarted {
            n,
            index,
            kind: kind.to_owned().into(),
            brief: "a brief".into(),
            before: PreActionState::Nothing,
        })
    }

    pub(crate) fn acts(self, index: u32, kind: &str, outcome: ActionOutcome) -> Self {
        let run = self.begins(index, kind);
        let n = run.state.open.as_ref().map_or(0, |open| open.n);
        run.then(Event::ActionFinished { n, index, outcome, code: None, duration_ms: 1, detail: "why".into() })
    }

    pub(crate) fn checks(self, stage: CheckStage, command: &str, proves: &[&str], code: i32) -> Self {
        let n = self.state.open.as_ref().map_or(1, |open| open.n);
        self.then(Event::CheckFinished {
            n,
            stage,
            command: command.to_owned(),
            proves: proves.iter().map(|id| (*id).into()).collect(),
            code,
            timed_out: false,
            duration_ms: 1,
            files: ralph_core::proof_files::ProofFileChanges::default(),
            output: String::new(),
        })
    }

    /// Ends the open iteration with the boxes that are verified now.
    pub(crate) fn ends(self, verified: &[&str]) -> Self {
        let n = self.state.open.as_ref().map_or(0, |open| open.n);
        let before = self.state.verified.clone();
        let now: BTreeSet<String> = verified.iter().map(|id| (*id).to_owned()).collect();
        let newly_verified = u32::try_from(now.difference(&before).count()).unwrap();
        self.then(Event::IterationFinished {
            n,
            outcome: IterationOutcome::Progress,
            head: "head".to_owned(),
            summary: "done".into(),
            sample: IterationSample { n, changed_lines: 3, newly_verified, ..IterationSample::default() },
            broken: before.difference(&now).cloned().collect(),
            verified: now.into_iter().collect(),
        })
    }

    pub(crate) fn scores(self, total: f64) -> Self {
        let n = self.state.last.as_ref().map_or(0, |last| last.n);
        self.then(Event::GutterScored {
            n,
            score: LoopScore { total, a: 0.0, b: 0.0, c: 0.0, evidence: Vec::new(), veto: None },
        })
    }

    pub(crate) fn imports(self, sha: &str) -> Self {
        self.then(Event::CommitImported { n: 1, sha: Some(commit(sha)), commits: 1, findings: Vec::new() })
    }

    pub(crate) fn pushes(self, sha: &str) -> Self {
        let branch = self.state.started.branch.clone();
        self.then(Event::Pushed { to: "origin".to_owned(), branch, sha: commit(sha) })
    }

    pub(crate) fn opens_pr(self) -> Self {
        self.then(Event::PrOpened { url: "u".to_owned(), number: 1 })
    }
}

/// Returns the commit that a test names by a short word.
pub(crate) fn commit(word: &str) -> CommitSha {
    CommitSha::parse(&ralph_core::hash::sha256(word.as_bytes())).unwrap()
}

pub(crate) fn sandbox_ready(head: &str, reclaim: &[&str]) -> Event {
    Event::SandboxReady {
        sandbox: "s".to_owned(),
        backend: "local".to_owned(),
        isolated: false,
        start: commit("start"),
        head: commit(head),
        reclaim: reclaim.iter().map(|id| (*id).to_owned()).collect(),
        verified: Vec::new(),
    }
}
