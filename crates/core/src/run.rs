//! Computes the state of a run as a fold of its events; nothing else computes it.
//!
//! The next step is decided in [`crate::decide`].

mod apply_events;
pub(crate) mod baseline_on_resume;
mod listing;
mod model_usage;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::action::ActionKind;
use crate::audit::AuditHead;
use crate::budget::{Budget, BudgetKind, BudgetUsage};
use crate::commit_sha::CommitSha;
use crate::diagnosis::DiagnosisProgress;
use crate::event::{BaselineProof, IterationOutcome, PreActionState, ReviewFinding, RunStart, RunStopReason};
use crate::exit_code::RalphExitCode;
use crate::gate_or_checkbox::CheckTarget;
use crate::gutter::{IterationSample, LadderPosition, LoopScore};
use crate::money::MicroUsd;
use crate::policy::Policy;
use crate::proof_files::ProofFileChanges;
use crate::pull_request::CiState;

pub use listing::RunListing;
pub use model_usage::ModelUsage;

/// The number of iterations in the loop score's window; older ones can no longer matter.
pub const SCORE_WINDOW: usize = 8;

/// The maximum number of findings in a pull request; more would not be read.
const MAX_FINDINGS: usize = 100;

/// The number of loop scores kept for display.
const MAX_SCORES: usize = 64;

/// The status of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum RunStatus {
    Queued,
    Preparing,
    Running,
    Paused { reason: RunStopReason, next: String },
    Succeeded,
    Failed { reason: RunStopReason, next: String },
    Stopped { reason: RunStopReason, next: String },
}

impl RunStatus {
    /// Returns the one-word name that users see.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Preparing => "preparing",
            Self::Running => "running",
            Self::Paused { .. } => "paused",
            Self::Succeeded => "succeeded",
            Self::Failed { .. } => "failed",
            Self::Stopped { .. } => "stopped",
        }
    }

    /// Returns the words that follow "it has".
    pub fn past_tense(&self) -> &'static str {
        match self {
            Self::Stopped { .. } => "been stopped",
            Self::Paused { .. } => "been paused",
            Self::Queued | Self::Preparing | Self::Running => "begun",
            Self::Succeeded | Self::Failed { .. } => self.word(),
        }
    }

    pub fn is_active(&self) -> bool {
        matches!(self, Self::Preparing | Self::Running)
    }

    pub fn is_ended(&self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed { .. } | Self::Stopped { .. })
    }
}

/// The sandbox the run works in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RunSandbox {
    pub sandbox: String,
    pub backend: String,
    pub isolated: bool,
    pub start: CommitSha,
}

/// The request with which the model ended its actions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum FinalAction {
    Rotate { why: String },
    Pause { why: String },
    StopSuccess { why: String },
    StopFailure { why: String },
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RunCheckResult {
    pub proves: Vec<CheckTarget>,
    pub code: i32,
    pub timed_out: bool,
    pub duration_ms: u64,
    pub output: String,
    pub files: ProofFileChanges,
}

impl RunCheckResult {
    pub fn passed(&self) -> bool {
        self.code == 0 && !self.timed_out
    }
}

/// An iteration that has started and not ended.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OpenIteration {
    pub n: u32,
    pub profile: String,
    /// Why it deliberately starts fresh, if it does.
    pub because: Option<String>,
    /// HEAD and the whole tree at the start of the iteration.
    pub head: String,
    pub tree: String,
    /// Calls made so far, including lost ones.
    pub calls: u32,
    /// Why each answer so far was invalid.
    pub invalid: Vec<String>,
    /// How often the current session was interrupted from outside.
    pub cut: u32,
    /// The valid answer: the number of actions, and the hash of its text.
    pub answer: Option<(u32, String)>,
    pub next_action: u32,
    /// An action that was started but whose end was not recorded.
    pub begun: Option<PendingAction>,
    /// Why the list of actions ended early.
    pub failed: Option<String>,
    pub wish: Option<FinalAction>,
    /// Results by command.
    pub checks: BTreeMap<String, RunCheckResult>,
    pub cost: MicroUsd,
    /// What was logged since the iteration started, so that a step repeated after a crash is not logged twice.
    pub told: BTreeSet<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PendingAction {
    pub index: u32,
    pub kind: ActionKind,
    pub brief: String,
    pub before: PreActionState,
}

/// The iteration that ended last.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LastIteration {
    pub n: u32,
    pub outcome: IterationOutcome,
    pub head: String,
    pub summary: String,
    pub wish: Option<FinalAction>,
    pub scored: bool,
    pub newly_verified: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RunPullRequest {
    pub url: String,
    pub number: u64,
    /// The commit that its text was last written for.
    pub sha: Option<CommitSha>,
    /// Its text includes the final proof of that commit.
    pub proved: bool,
}

/// The number of remembered requests: a request is resent within seconds, not after hundreds of others.
const REMEMBERED_REQUESTS: usize = 256;

/// Everything known about a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunState {
    pub started: Box<RunStart>,
    pub status: RunStatus,
    pub budget: Budget,
    pub spent: BudgetUsage,
    /// Calls and cost of each model, by its name.
    pub models: BTreeMap<String, ModelUsage>,
    pub profile: String,
    /// The profile that a user chose; without one it is the default. The ladder may leave it and comes back to it.
    pub chosen: Option<String>,
    pub workplace: Option<RunSandbox>,
    pub baseline: Option<Vec<BaselineProof>>,
    /// Why the base commit makes the run pointless, until the baseline is run again.
    pub baseline_refused: Option<String>,
    pub open: Option<OpenIteration>,
    pub last: Option<LastIteration>,
    pub window: VecDeque<IterationSample>,
    pub scores: VecDeque<f64>,
    pub verified: BTreeSet<String>,
    /// Boxes that were verified before the sandbox was rebuilt; the next check proves them again.
    pub reclaim: BTreeSet<String>,
    /// The last result of `test_command` on the current state.
    pub gate: Option<bool>,
    /// Gutter verdicts since the last progress. An iteration that is neither leaves the ladder where it is: otherwise
    /// a run with an occasional change would never reach its second rung.
    pub climb: LadderPosition,
    /// The score of the last iteration.
    pub last_score: Option<LoopScore>,
    /// A gutter was scored and not mitigated yet.
    pub unmitigated: bool,
    /// The mitigation is to pause for a person, and the run is not paused yet.
    pub pause_due: bool,
    pub rotate_because: Option<String>,
    pub diagnoses: DiagnosisProgress,
    /// The current revision of the task, counted from 1.
    pub task_revision: u32,
    pub warned: BTreeMap<BudgetKind, u8>,
    pub imported: Option<CommitSha>,
    pub import_stopped: Option<String>,
    /// Findings for a reviewer in the imported commits, each once.
    pub findings: Vec<ReviewFinding>,
    pub commits: u32,
    /// Boxes that were verified and are not any more, with the iteration that broke them.
    pub broken: BTreeMap<String, u32>,
    /// How many commits there were at each import, for a run that is rewound.
    pub imports: BTreeMap<CommitSha, u32>,
    pub pushed: Option<CommitSha>,
    /// Milestones that were complete at the last push of the branch.
    pub pushed_milestones: BTreeSet<String>,
    pub pull_request: Option<RunPullRequest>,
    /// The last known CI state of the pushed commit.
    #[serde(skip_serializing_if = "CiState::is_none")]
    pub ci: CiState,
    /// Results of the final proof on the pushed commit, by command.
    pub proof: BTreeMap<String, RunCheckResult>,
    /// The policy in force: the one the run started with plus what users added.
    pub policy: Policy,
    /// The number of hosts and ports that were refused.
    pub denied: u32,
    /// The number of agent calls that are recorded in events: later calls in the proxy are still to be recorded.
    pub through: u64,
    /// The number of consecutive waits for a provider that gave no answer.
    pub waited: u32,
    /// How far the audit log is anchored.
    pub audited: Option<AuditHead>,
    /// The last applied requests, oldest first.
    #[serde(skip_serializing_if = "VecDeque::is_empty")]
    pub applied_requests: VecDeque<String>,
    pub started_at: Timestamp,
    pub last_at: Timestamp,
    pub last_seq: u64,
}

/// The reasons why lines are not the history of a run.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum BadHistory {
    #[error("the first event is `{found}`, not `run-started`")]
    NoStart { found: &'static str },
    #[error("there are no events")]
    Empty,
    #[error("event {found} follows event {last}")]
    Gap { last: u64, found: u64 },
    #[error("a second `run-started` at event {seq}")]
    SecondStart { seq: u64 },
}

impl RunState {
    /// Returns whether a request was already applied; a client that got no answer may send it again.
    pub fn has_applied(&self, request: &str) -> bool {
        self.applied_requests.iter().any(|applied| applied == request)
    }

    /// Returns the policy in force: the one the run started with and what users have allowed and denied since.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns the milestones all of whose boxes are verified.
    pub fn complete_milestones(&self) -> BTreeSet<String> {
        let mut complete = BTreeMap::new();
        for pinned in &self.started.boxes {
            if let Some(milestone) = &pinned.milestone {
                let all = complete.entry(milestone.clone()).or_insert(true);
                *all &= self.verified.contains(&pinned.id);
            }
        }
        complete.into_iter().filter_map(|(milestone, all)| all.then_some(milestone)).collect()
    }

    /// Returns the boxes that a rebuilt sandbox has to prove again: the verified ones, and those already to be
    /// re-proved.
    pub fn boxes_to_reprove(&self) -> Vec<String> {
        self.verified.union(&self.reclaim).cloned().collect()
    }

    pub fn all_verified(&self) -> bool {
        self.started.boxes.iter().all(|pinned| self.verified.contains(&pinned.id))
    }

    /// Returns the number of the next iteration.
    pub fn next_iteration(&self) -> u32 {
        self.last.as_ref().map_or(self.started.carried.iterations, |last| last.n).saturating_add(1)
    }

    /// Returns the exit code of a process that ends with the run in this state.
    pub fn exit(&self) -> RalphExitCode {
        match &self.status {
            RunStatus::Succeeded => RalphExitCode::Success,
            RunStatus::Queued | RunStatus::Preparing | RunStatus::Running => RalphExitCode::Failed,
            RunStatus::Paused { reason, .. } => match reason {
                RunStopReason::Auth { .. } => RalphExitCode::Auth,
                RunStopReason::Interrupted => RalphExitCode::Interrupted,
                RunStopReason::SandboxLost | RunStopReason::SandboxBroken { .. } | RunStopReason::Host { .. } => {
                    RalphExitCode::NotReady
                }
                _ => RalphExitCode::Paused,
            },
            RunStatus::Failed { reason, .. } | RunStatus::Stopped { reason, .. } => match reason {
                RunStopReason::Budget { .. } => RalphExitCode::Budget,
                RunStopReason::Auth { .. } => RalphExitCode::Auth,
                RunStopReason::Interrupted => RalphExitCode::Interrupted,
                RunStopReason::Baseline { .. } => RalphExitCode::Usage,
                _ => RalphExitCode::Failed,
            },
        }
    }

    /// Returns the name under which the run is shown: its id.
    pub fn id(&self) -> &str {
        &self.started.run
    }
}
