//! A run as it is shown from outside.

use ralph_core::budget::Limit;
use ralph_core::event::Reason;
use ralph_core::run::{Checked, State, Status};
use serde::Serialize;

/// The number of the format of every view.
pub const FORMAT: u32 = 1;

/// One row of a list of runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    pub id: String,
    pub state: &'static str,
    /// Why it is not running, in words.
    pub reason: Option<String>,
    /// What a person can do next.
    pub next: Option<String>,
    /// A process works on it now.
    pub live: bool,
    pub task_id: String,
    pub title: String,
    pub repo: String,
    pub branch: String,
    pub iteration: u32,
    pub max_iterations: u32,
    pub boxes_verified: usize,
    pub boxes: usize,
    pub cost_usd: f64,
    pub max_cost_usd: Option<f64>,
    pub tokens: u64,
    pub loop_score: Option<f64>,
    pub profile: String,
    pub pull_request: Option<String>,
    pub started_at: String,
    pub last_at: String,
}

/// Everything of one run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Detail {
    pub format: u32,
    #[serde(flatten)]
    pub summary: Summary,
    pub base_branch: String,
    pub base_commit: String,
    pub task_path: String,
    pub backend: String,
    pub isolated: Option<bool>,
    pub sandbox: Option<String>,
    pub test_command: String,
    pub tests_pass: Option<bool>,
    pub boxes_detail: Vec<Checkbox>,
    pub budgets: Vec<BudgetLine>,
    pub loop_scores: Vec<f64>,
    pub last_summary: Option<String>,
    pub commits: u32,
    pub commit: Option<String>,
    pub pushed: Option<String>,
    pub proof: Vec<Proof>,
    pub recovered: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Checkbox {
    pub id: String,
    pub text: String,
    pub milestone: Option<String>,
    pub verified: bool,
    pub proofs: Vec<String>,
    /// Some command proves this box and no other.
    pub own_proof: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BudgetLine {
    pub limit: Limit,
    pub used: f64,
    pub whole: Option<f64>,
    pub unit: &'static str,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Proof {
    pub command: String,
    pub proves: Vec<String>,
    pub code: i32,
    pub passed: bool,
    pub duration_ms: u64,
    pub output_sha256: String,
}

/// Where a run stands, with the difference between "running" and "its process died".
pub fn word(state: &State, live: bool) -> &'static str {
    if state.status.active() && !live { "crashed" } else { state.status.word() }
}

/// Returns why a run rests and what to do about it.
pub fn rest(state: &State, live: bool) -> Option<(String, String)> {
    let id = state.id();
    match &state.status {
        Status::Paused { reason, next } | Status::Failed { reason, next } | Status::Stopped { reason, next } => {
            Some((reason.words(), next.clone()))
        }
        Status::Preparing | Status::Running if !live => {
            Some(("its process ended without a word".to_owned(), Reason::Interrupted.next(id)))
        }
        Status::Queued | Status::Preparing | Status::Running | Status::Succeeded => None,
    }
}

pub fn summary(state: &State, live: bool) -> Summary {
    let started = &state.started;
    let (reason, next) = rest(state, live).unzip();
    Summary {
        id: started.run.clone(),
        state: word(state, live),
        reason,
        next,
        live,
        task_id: started.task_id.clone(),
        title: started.title.clone(),
        repo: started.repo.clone(),
        branch: started.branch.clone(),
        iteration: state.spent.iterations,
        max_iterations: state.budget.iterations,
        boxes_verified: state.verified.len(),
        boxes: started.boxes.len(),
        cost_usd: state.spent.cost.as_usd(),
        max_cost_usd: state.budget.cost.map(ralph_core::money::Micros::as_usd),
        tokens: state.spent.tokens,
        loop_score: state.scores.back().copied(),
        profile: state.profile.clone(),
        pull_request: state.pull_request.as_ref().map(|pr| pr.url.clone()),
        started_at: state.started_at.to_string(),
        last_at: state.last_at.to_string(),
    }
}

pub fn detail(state: &State, live: bool) -> Detail {
    let started = &state.started;
    Detail {
        format: FORMAT,
        summary: summary(state, live),
        base_branch: started.base_branch.clone(),
        base_commit: started.base_commit.clone(),
        task_path: started.task_path.clone(),
        backend: started.backend.clone(),
        isolated: state.workplace.as_ref().map(|place| place.isolated),
        sandbox: state.workplace.as_ref().map(|place| place.sandbox.clone()),
        test_command: started.test_command.clone(),
        tests_pass: state.gate,
        boxes_detail: boxes(state),
        budgets: budgets(state),
        loop_scores: state.scores.iter().copied().collect(),
        last_summary: state.last.as_ref().map(|last| last.summary.clone()),
        commits: state.commits,
        commit: state.imported.clone(),
        pushed: state.pushed.clone(),
        proof: state.proof.iter().map(proof).collect(),
        recovered: started.recovered,
    }
}

fn boxes(state: &State) -> Vec<Checkbox> {
    let line = |pinned: &ralph_core::event::PinnedBox| Checkbox {
        id: pinned.id.clone(),
        text: pinned.text.clone(),
        milestone: pinned.milestone.clone(),
        verified: state.verified.contains(&pinned.id),
        proofs: pinned.proofs.clone(),
        own_proof: ralph_core::proof::has_own(&state.started, pinned),
    };
    state.started.boxes.iter().map(line).collect()
}

fn budgets(state: &State) -> Vec<BudgetLine> {
    let line = |limit: Limit| {
        let (scale, unit) = match limit {
            Limit::Iterations => (1.0, "iterations"),
            Limit::Time => (60_000.0, "minutes"),
            Limit::Cost => (1e6, "usd"),
            Limit::Tokens => (1.0, "tokens"),
        };
        let whole = state.budget.of(limit).map(|whole| whole as f64 / scale);
        BudgetLine { limit, used: state.spent.of(limit) as f64 / scale, whole, unit }
    };
    Limit::ALL.into_iter().map(line).collect()
}

fn proof((command, checked): (&String, &Checked)) -> Proof {
    Proof {
        command: command.clone(),
        proves: checked.proves.clone(),
        code: checked.code,
        passed: checked.passed(),
        duration_ms: checked.duration_ms,
        output_sha256: checked.output.clone(),
    }
}
