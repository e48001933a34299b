//! Defines everything that can happen in a run, as one closed enum.
//!
//! A run appends an [`EventLine`] to its `events.jsonl` first and announces it afterwards. Terminal, `--json`,
//! WebSocket and resume are readers of that one stream; [`crate::run::RunState`] is its fold. What follows from an
//! event is decided elsewhere.

mod stop_reason;

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::action::ActionKind;
use crate::budget::{Budget, BudgetKind};
use crate::commit_sha::{CommitSha, empty_if_none};
use crate::config::ToolchainSelection;
use crate::control_request::Control;
use crate::gate_or_checkbox::CheckTarget;
use crate::gutter::{IterationSample, LadderRung, LoopScore, MitigationCause};
use crate::identifiers::TaskBranch;
use crate::money::MicroUsd;
use crate::policy::Policy;
use crate::price::{Price, TokenUsage};
use crate::proof_files::{PinnedSection, ProofFileChanges};
use crate::pull_request::{CiState, PublishReason};
use crate::redact::MaskedText;
use crate::task::{DiagnoseSettings, Task};

pub use stop_reason::{RunStopReason, RunVerdict};

/// The format version of `events.jsonl`.
pub const FORMAT: u32 = 1;

/// The `by` of a run that resumed at the reset time its provider gave.
pub const RESUMED_BY_RESET_TIME: &str = "the provider's reset time";

/// The `by` of a run that resumed after waiting for a provider that did not answer.
pub const RESUMED_BY_WAIT: &str = "the end of its wait";

/// One line of `events.jsonl`.
#[derive(Debug, Clone, PartialEq)]
pub struct EventLine {
    pub seq: u64,
    pub at: Timestamp,
    /// The real time since the previous line, if the wall clock cannot give it: the clock was set, or another process
    /// wrote that line.
    pub passed_ms: Option<u64>,
    pub event: Event,
}

/// Why a line of `events.jsonl` could not be read.
#[derive(Debug, thiserror::Error)]
pub enum BadEventLine {
    #[error("the line is not a known event")]
    Unknown(#[source] serde_json::Error),
    #[error("the run was written in format {found}, and this ralph reads up to {FORMAT}")]
    Newer { found: u32 },
}

impl BadEventLine {
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Unknown(_) => Some("the file was damaged, or a newer ralph wrote it".to_owned()),
            Self::Newer { .. } => Some("upgrade ralph, or look at the run with the version that made it".to_owned()),
        }
    }
}

#[derive(Serialize)]
struct EventLineRef<'a> {
    seq: u64,
    at: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    passed_ms: Option<u64>,
    #[serde(flatten)]
    event: &'a Event,
}

#[derive(Deserialize)]
struct EventLineHeader {
    seq: u64,
    at: Timestamp,
    #[serde(default)]
    passed_ms: Option<u64>,
}

impl EventLine {
    /// Writes the line as JSON without its newline.
    pub fn to_json(&self) -> String {
        let written = EventLineRef { seq: self.seq, at: self.at, passed_ms: self.passed_ms, event: &self.event };
        serde_json::to_string(&written).expect("events hold only plain data with string keys")
    }

    /// Reads one line. Fields of a later version are ignored; they stay in the file, which is never rewritten.
    pub fn parse(text: &str) -> Result<Self, BadEventLine> {
        let line = match Self::parse_canonical(text) {
            Some(line) => line,
            None => Self::parse_any_order(text).map_err(BadEventLine::Unknown)?,
        };
        if let Event::RunStarted(started) = &line.event
            && started.format > FORMAT
        {
            return Err(BadEventLine::Newer { found: started.format });
        }
        Ok(line)
    }

    /// Parses a line whose fields are in the order of [`EventLine::to_json`], in half the time: a long run has a
    /// hundred thousand of them. Returns `None` for every other line, valid or not.
    fn parse_canonical(text: &str) -> Option<Self> {
        let (seq, rest) = text.strip_prefix("{\"seq\":")?.split_once(",\"at\":\"")?;
        let (at, rest) = rest.split_once("\",\"type\":")?;
        let odd = !seq.bytes().all(|byte| byte.is_ascii_digit()) || seq.starts_with('0') || at.contains(['\\', '"']);
        if odd || rest.contains("\"seq\"") || rest.contains("\"at\"") || rest.contains("\"passed_ms\"") {
            return None;
        }
        let event = serde_json::from_str(&["{\"type\":", rest].concat()).ok()?;
        Some(Self { seq: seq.parse().ok()?, at: at.parse().ok()?, passed_ms: None, event })
    }

    fn parse_any_order(text: &str) -> Result<Self, serde_json::Error> {
        let EventLineHeader { seq, at, passed_ms } = serde_json::from_str(text)?;
        Ok(Self { seq, at, passed_ms, event: serde_json::from_str(text)? })
    }
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Event {
    RunStarted(Box<RunStart>),
    SandboxReady {
        sandbox: String,
        backend: String,
        /// False for `local`, which does not isolate.
        isolated: bool,
        /// The commit the branch starts from.
        start: CommitSha,
        /// The commit the work tree is at.
        head: CommitSha,
        /// Boxes that were verified before the sandbox was rebuilt and are proved again at the next check.
        reclaim: Vec<String>,
        /// Those of them whose ticks are in the task file of `head`; missing in older runs, which unticked all.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        verified: Vec<String>,
    },
    BaselineChecked {
        checks: Vec<BaselineProof>,
        /// Why a run on this base could not prove anything, if so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refused: Option<String>,
    },
    IterationStarted {
        n: u32,
        profile: String,
        /// Why the session starts fresh on purpose, if it does.
        because: Option<String>,
        /// HEAD and the whole tree, untracked files included, when the iteration started.
        head: String,
        tree: String,
    },
    ModelCalled {
        n: u32,
        call: u32,
        profile: String,
        model: String,
        answer: ModelCallOutcome,
        usage: TokenUsage,
        cost: MicroUsd,
        duration_ms: u64,
    },
    ActionStarted {
        n: u32,
        index: u32,
        kind: ActionKind,
        brief: MaskedText,
        before: PreActionState,
    },
    ActionFinished {
        n: u32,
        index: u32,
        outcome: ActionOutcome,
        code: Option<i32>,
        duration_ms: u64,
        /// One line: what was done, or why it failed.
        detail: MaskedText,
    },
    Log {
        level: EventLogLevel,
        text: MaskedText,
    },
    CheckFinished {
        n: u32,
        stage: CheckStage,
        command: String,
        proves: Vec<CheckTarget>,
        code: i32,
        timed_out: bool,
        duration_ms: u64,
        /// SHA-256 of the whole output.
        output: String,
        /// The files of the proof that the run had changed, and what became of them in this check.
        #[serde(default, skip_serializing_if = "ProofFileChanges::is_empty")]
        files: ProofFileChanges,
    },
    IterationFinished {
        n: u32,
        outcome: IterationOutcome,
        head: String,
        /// Text for the user: the model's summary, or what went wrong.
        summary: MaskedText,
        sample: IterationSample,
        /// Boxes that are verified after this iteration.
        verified: Vec<String>,
        /// Boxes that were verified before and whose proof fails now.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        broken: Vec<String>,
    },
    GutterScored {
        n: u32,
        score: LoopScore,
    },
    MitigationApplied {
        n: u32,
        rung: LadderRung,
        profile: String,
        why: MaskedText,
        /// Missing in older runs and for the ladder itself.
        #[serde(default, skip_serializing_if = "MitigationCause::is_gutter")]
        cause: MitigationCause,
    },
    DiagnosisWritten {
        n: u32,
        profile: String,
        proposals: u32,
        /// How many of them, the first ones, are guardrails.
        #[serde(default)]
        guardrails: u32,
        /// The numbers of the proposals that the task allows to apply without asking; missing in older runs, which did
        /// so for guardrails alone.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        unasked: Vec<u32>,
        /// Why there is no diagnosis, if there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failed: Option<MaskedText>,
    },
    BudgetWarned {
        limit: BudgetKind,
        percent: u8,
    },
    CommitImported {
        n: u32,
        /// `None` if nothing was imported.
        #[serde(with = "empty_if_none")]
        sha: Option<CommitSha>,
        commits: u32,
        findings: Vec<ReviewFinding>,
    },
    Pushed {
        to: String,
        branch: TaskBranch,
        sha: CommitSha,
    },
    PrOpened {
        url: String,
        number: u64,
    },
    PrUpdated {
        url: String,
        number: u64,
        why: PublishReason,
    },
    CiChanged(CiState),
    /// The egress proxy refused something: recorded the first time for a host and port, or for one request to it, and
    /// then whenever the count has grown tenfold.
    PolicyDenied {
        host: String,
        /// 0 if no port was asked for.
        port: u16,
        /// The method and path, if a single request was refused.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        request: Option<String>,
        /// The reason, as text.
        rule: String,
        /// The rule that would allow it, if one can.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        remedy: Option<String>,
        /// How often it was refused so far.
        #[serde(default = "once")]
        count: u64,
    },
    /// The head of the audit log's hash chain: any loss or change in the log up to there is detected.
    AuditAnchored {
        lines: u64,
        head: String,
    },
    Paused {
        reason: RunStopReason,
        next: String,
    },
    Resumed {
        by: String,
    },
    ControlApplied {
        control: Control,
        by: String,
        /// The id of the request, so that a repeated request is not applied twice.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<String>,
    },
    RunFinished {
        verdict: RunVerdict,
        next: String,
    },
}

impl Event {
    /// Returns the tag the event is written with.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::RunStarted(_) => "run-started",
            Self::SandboxReady { .. } => "sandbox-ready",
            Self::BaselineChecked { .. } => "baseline-checked",
            Self::IterationStarted { .. } => "iteration-started",
            Self::ModelCalled { .. } => "model-called",
            Self::ActionStarted { .. } => "action-started",
            Self::ActionFinished { .. } => "action-finished",
            Self::Log { .. } => "log",
            Self::CheckFinished { .. } => "check-finished",
            Self::IterationFinished { .. } => "iteration-finished",
            Self::GutterScored { .. } => "gutter-scored",
            Self::MitigationApplied { .. } => "mitigation-applied",
            Self::DiagnosisWritten { .. } => "diagnosis-written",
            Self::BudgetWarned { .. } => "budget-warned",
            Self::CommitImported { .. } => "commit-imported",
            Self::Pushed { .. } => "pushed",
            Self::PrOpened { .. } => "pr-opened",
            Self::PrUpdated { .. } => "pr-updated",
            Self::CiChanged(_) => "ci-changed",
            Self::PolicyDenied { .. } => "policy-denied",
            Self::AuditAnchored { .. } => "audit-anchored",
            Self::Paused { .. } => "paused",
            Self::Resumed { .. } => "resumed",
            Self::ControlApplied { .. } => "control-applied",
            Self::RunFinished { .. } => "run-finished",
        }
    }
}

/// The default count: older runs recorded every refusal as an event of its own.
fn once() -> u64 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_once(times: &u64) -> bool {
    *times == 1
}

/// The first event of a run: everything that was read on the host at its start and stays in force.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunStart {
    pub format: u32,
    pub run: String,
    pub ralph: String,
    pub task_id: String,
    pub title: String,
    /// The user's repository, as a path or URL without credentials.
    pub repo: String,
    /// The path of the task file inside the repository.
    pub task_path: String,
    pub task_sha256: String,
    pub base_branch: String,
    pub base_commit: CommitSha,
    /// The base, or the commit on top of it that adds the uncommitted changes of the host.
    pub start_commit: CommitSha,
    pub branch: TaskBranch,
    pub engine: String,
    /// The agent that works in the sandbox, if the engine is `agent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<PinnedAgent>,
    pub backend: String,
    pub image: Option<String>,
    /// What the sandbox may use and see; missing in older runs, which left it to the backend.
    #[serde(default)]
    pub resources: PinnedResources,
    #[serde(default)]
    pub toolchains: ToolchainSelection,
    /// Secrets that are granted to requests from the work sandbox, each as `NAME=HOST`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lent: Vec<String>,
    pub profiles: RunProfiles,
    pub budget: Budget,
    pub test_command: String,
    /// The `verify_commands`, which are gates like the test command; missing in older runs, which ran them only for
    /// boxes without a proof of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gates: Vec<String>,
    pub test_every: RunTestSchedule,
    pub check_timeout_s: u64,
    /// The longest time that one command of a model may take; none in older runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command_timeout_s: Option<u64>,
    pub boxes: Vec<PinnedBox>,
    pub protected_paths: Vec<String>,
    /// Tests and settings of test runners that the run may change with effect on its checks; empty in older runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub may_change: Vec<String>,
    /// Files that the checks depend on besides the commands themselves: protected as well.
    pub proof_files: Vec<String>,
    /// The tests and scripts that each check names and that the run has to write first.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub to_be_written: BTreeMap<String, Vec<String>>,
    /// Files of which only a section affects the checks; missing in older runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pinned_parts: Vec<PinnedSection>,
    pub policy: Policy,
    /// Sending more bytes than this raises an alarm; missing in older runs, which raised none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub alarm_after: Option<u64>,
    pub commit_state: bool,
    pub min_changed_lines: u64,
    pub ladder: Vec<LadderRung>,
    /// How often to diagnose and what to apply without asking; missing in older runs, which had no diagnosis.
    #[serde(default)]
    pub diagnose: DiagnoseSettings,
    pub identity: CommitIdentity,
    pub pr: PinnedPullRequest,
    pub baseline: bool,
    /// True when the run folder was rebuilt from a sandbox.
    #[serde(default)]
    pub recovered: bool,
    /// What a recovered run had used up before it was adopted.
    #[serde(default)]
    pub carried: CarriedUsage,
}

/// The resource limits of a run's sandboxes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinnedResources {
    /// Bytes.
    pub memory: Option<u64>,
    /// Thousandths of a processor.
    pub cpus: Option<u32>,
    /// Bytes.
    pub disk: Option<u64>,
    pub pids: Option<u64>,
}

/// What an adopted run had used according to its sandbox.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CarriedUsage {
    pub iterations: u32,
    pub cost: MicroUsd,
    pub tokens: u64,
}

/// The profiles of a run, resolved at its start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunProfiles {
    pub default: PinnedProfile,
    pub fallback: Option<PinnedProfile>,
    pub doctor: Option<PinnedProfile>,
}

impl RunProfiles {
    pub fn get(&self, name: &str) -> Option<&PinnedProfile> {
        [Some(&self.default), self.fallback.as_ref(), self.doctor.as_ref()]
            .into_iter()
            .flatten()
            .find(|profile| profile.name == name)
    }

    /// Returns the profile that makes diagnoses: the doctor, else the fallback, else the run's own profile.
    pub fn doctor(&self) -> &PinnedProfile {
        self.doctor.as_ref().or(self.fallback.as_ref()).unwrap_or(&self.default)
    }

    /// Returns the names of all profiles, each once.
    pub fn names(&self) -> Vec<&str> {
        self.iteration_profiles(None)
    }

    /// Returns the names of the profiles an iteration can use: the doctor's model is not granted to an agent.
    pub fn iteration_profiles(&self, agent: Option<&PinnedAgent>) -> Vec<&str> {
        let doctor = self.doctor.as_ref().filter(|_| agent.is_none());
        let mut names = vec![self.default.name.as_str()];
        for profile in [self.fallback.as_ref(), doctor].into_iter().flatten() {
            if !names.contains(&profile.name.as_str()) {
                names.push(&profile.name);
            }
        }
        names
    }
}

/// A profile as it was when the run started; it names credentials and never contains them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PinnedProfile {
    pub name: String,
    pub model: String,
    pub base_url: Option<String>,
    pub api_key_env: Option<String>,
    pub max_output_tokens: u32,
    pub temperature: Option<f64>,
    pub timeout_s: u64,
    pub price: Option<Price>,
    /// The longest answer the model gives, in tokens, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_output: Option<u64>,
    #[serde(default)]
    pub extra: BTreeMap<String, serde_json::Value>,
}

/// The agent of a run as it was when the run started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinnedAgent {
    pub name: String,
    /// The command line, for an agent that is not built in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<Vec<String>>,
    /// How long a session may take.
    pub session_s: u64,
    /// How long it may print nothing.
    pub idle_s: u64,
    /// How long it may keep running after it reported its result.
    pub grace_s: u64,
}

/// A checkbox with the proof that counts, whatever the work tree contains later.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinnedBox {
    pub id: String,
    pub text: String,
    pub milestone: Option<String>,
    pub proofs: Vec<String>,
}

impl PinnedBox {
    /// Returns every box of a task; one without a proof of its own is proved by all `verify_commands`.
    pub fn from_task(task: &Task) -> Vec<Self> {
        let pin = |checkbox: &crate::task::Checkbox| Self {
            id: checkbox.id.clone(),
            text: checkbox.text.clone(),
            milestone: checkbox.milestone.clone(),
            proofs: if checkbox.proofs.is_empty() {
                task.front.verify_commands.clone()
            } else {
                checkbox.proofs.clone()
            },
        };
        task.boxes.iter().map(pin).collect()
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunTestSchedule {
    #[default]
    Iteration,
    Claim,
}

/// The author and committer of commits; the host user's keys are never used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitIdentity {
    pub name: String,
    pub email: String,
}

/// What the task asks of its pull request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinnedPullRequest {
    pub draft: bool,
    pub labels: Vec<String>,
    pub title_template: Option<String>,
    pub body_template: Option<String>,
}

/// How a model call ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum ModelCallOutcome {
    /// A valid answer; its text is in the artefacts under this hash.
    Actions { count: u32, response: String },
    /// A valid diagnosis.
    Diagnosis { proposals: u32, response: String },
    /// An answer that is not what was asked for.
    Invalid { error: MaskedText },
    /// The process died while the call was under way: charged by estimate and sent again.
    Lost,
    /// An agent's own call, metered by the egress proxy, which does not record its contents.
    Through {
        status: Option<u16>,
        /// How many calls this event covers: many failed calls are recorded together.
        #[serde(default = "once", skip_serializing_if = "is_once")]
        times: u64,
    },
}

impl ModelCallOutcome {
    /// Returns how many calls the event covers.
    pub fn times(&self) -> u64 {
        match self {
            Self::Through { times, .. } => *times,
            Self::Actions { .. } | Self::Diagnosis { .. } | Self::Invalid { .. } | Self::Lost => 1,
        }
    }
}

/// The state before an action, so that a resume can tell "not started" from "done".
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum PreActionState {
    /// A file action: the hash of the content before and after (`None`: no such file).
    File { path: String, before: Option<String>, after: String },
    /// A command or commit: HEAD and the whole tree; and what was staged, if known.
    Tree {
        head: String,
        tree: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        index: Option<String>,
    },
    /// An action without effects, which may be repeated.
    Nothing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ActionOutcome {
    Ok,
    Failed,
    /// Refused before it changed anything.
    Refused,
    /// Interrupted by a cause outside the action: it is started again.
    Cut,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventLogLevel {
    Info,
    Warn,
    Error,
}

/// When a check ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckStage {
    /// After an iteration, in the work sandbox.
    Iteration,
    /// At the end, on the pushed commit in a fresh sandbox.
    Proof,
}

/// The result of a proof on the base commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BaselineProof {
    pub proves: Vec<CheckTarget>,
    pub command: String,
    pub verdict: BaselineVerdict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BaselineVerdict {
    Red,
    Vacuous,
    Flaky,
    Slow,
    MissingTool,
    DeniedHost,
    CannotStart,
}

/// How an iteration ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum IterationOutcome {
    /// Something changed and no action failed.
    Progress,
    /// Nothing changed at all.
    NoProgress,
    ActionFailed,
    /// The model never gave a valid answer.
    BadOutput,
    /// A protected path was changed; it was restored.
    Protected,
    /// The model asked for a fresh session.
    Rotated,
    /// A box that was verified is no longer: its proof fails now.
    Regression,
}

/// Something a reviewer should see in the commits imported from the sandbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReviewFinding {
    pub rule: String,
    pub path: String,
    pub detail: String,
    /// True if the finding blocks the import.
    pub stop: bool,
}

#[cfg(test)]
mod tests;
