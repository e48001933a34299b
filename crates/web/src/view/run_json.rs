//! Defines one run as an object for programs: a row of a list, or all details.

use ralph_core::budget::BudgetKind;
use ralph_core::event::RunStopReason;
use ralph_core::proof_files::ProofFileChanges;
use ralph_core::run::{RunCheckResult, RunListing, RunState, RunStatus};
use serde::Serialize;

/// The format version of every view.
pub const FORMAT: u32 = 1;

/// One row of a list of runs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunSummary {
    pub id: String,
    pub state: &'static str,
    /// Why it is not running, as text.
    pub reason: Option<String>,
    /// What the user can do next.
    pub next: Option<String>,
    /// Whether a process works on it now.
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

/// All details of one run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunDetail {
    pub format: u32,
    #[serde(flatten)]
    pub summary: RunSummary,
    pub base_branch: String,
    pub base_commit: String,
    pub task_path: String,
    pub backend: String,
    pub isolated: Option<bool>,
    pub sandbox: Option<String>,
    pub test_command: String,
    pub tests_pass: Option<bool>,
    pub boxes_detail: Vec<CheckboxView>,
    pub budgets: Vec<BudgetLine>,
    pub loop_scores: Vec<f64>,
    pub last_summary: Option<String>,
    pub commits: u32,
    pub commit: Option<String>,
    pub pushed: Option<String>,
    pub proof: Vec<ProofView>,
    pub recovered: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CheckboxView {
    pub id: String,
    pub text: String,
    pub milestone: Option<String>,
    pub verified: bool,
    /// The iteration that broke it after it was verified, if it is still broken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub broken_in: Option<u32>,
    pub proofs: Vec<String>,
    /// Whether a command proves this box and no other.
    pub own_proof: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BudgetLine {
    pub limit: BudgetKind,
    pub used: f64,
    pub whole: Option<f64>,
    pub unit: &'static str,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProofView {
    pub command: String,
    pub proves: Vec<String>,
    pub code: i32,
    pub passed: bool,
    pub duration_ms: u64,
    pub output_sha256: String,
    /// The tests and scripts it names that the run itself wrote.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub written_by_run: Vec<String>,
    /// The files of the proof that the run had changed, and what became of them in this check.
    #[serde(skip_serializing_if = "ProofFileChanges::is_empty")]
    pub files: ProofFileChanges,
}

/// Returns the state of a run, which distinguishes "running" from "its process died".
pub fn status_word(status: &RunStatus, live: bool) -> &'static str {
    if status.is_active() && !live { "crashed" } else { status.word() }
}

/// Returns why a run rests and what to do about it.
pub fn rest_reason(status: &RunStatus, run: &str, live: bool) -> Option<(String, String)> {
    match status {
        RunStatus::Paused { reason, next }
        | RunStatus::Failed { reason, next }
        | RunStatus::Stopped { reason, next } => Some((reason.describe(), next.clone())),
        RunStatus::Preparing | RunStatus::Running if !live => {
            Some(("its process ended unexpectedly".to_owned(), RunStopReason::Interrupted.next_step(run)))
        }
        RunStatus::Queued | RunStatus::Preparing | RunStatus::Running | RunStatus::Succeeded => None,
    }
}

pub fn summary(listing: RunListing, live: bool) -> RunSummary {
    let (reason, next) = rest_reason(&listing.status, &listing.run, live).unzip();
    RunSummary {
        state: status_word(&listing.status, live),
        id: listing.run,
        reason,
        next,
        live,
        task_id: listing.task_id,
        title: listing.title,
        repo: listing.repo,
        branch: listing.branch.into(),
        iteration: listing.iteration,
        max_iterations: listing.max_iterations,
        boxes_verified: listing.boxes_verified,
        boxes: listing.boxes,
        cost_usd: listing.cost.as_usd(),
        max_cost_usd: listing.max_cost.map(ralph_core::money::MicroUsd::as_usd),
        tokens: listing.tokens,
        loop_score: listing.loop_score,
        profile: listing.profile,
        pull_request: listing.pull_request,
        started_at: listing.started_at.to_string(),
        last_at: listing.last_at.to_string(),
    }
}

pub fn detail(state: &RunState, live: bool) -> RunDetail {
    let started = &state.started;
    RunDetail {
        format: FORMAT,
        summary: summary(RunListing::of(state), live),
        base_branch: started.base_branch.clone(),
        base_commit: started.base_commit.to_string(),
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
        commit: state.imported.clone().map(String::from),
        pushed: state.pushed.clone().map(String::from),
        proof: state.proof.iter().map(|(command, checked)| proof(state, command, checked)).collect(),
        recovered: started.recovered,
    }
}

fn boxes(state: &RunState) -> Vec<CheckboxView> {
    let line = |pinned: &ralph_core::event::PinnedBox| CheckboxView {
        id: pinned.id.clone(),
        text: pinned.text.clone(),
        milestone: pinned.milestone.clone(),
        verified: state.verified.contains(&pinned.id),
        broken_in: state.broken.get(&pinned.id).copied(),
        proofs: pinned.proofs.clone(),
        own_proof: ralph_core::proof_files::has_own_proof(&state.started, pinned),
    };
    state.started.boxes.iter().map(line).collect()
}

fn budgets(state: &RunState) -> Vec<BudgetLine> {
    let line = |limit: BudgetKind| {
        let (scale, unit) = match limit {
            BudgetKind::Iterations => (1.0, "iterations"),
            BudgetKind::Time => (60_000.0, "minutes"),
            BudgetKind::Cost => (1e6, "usd"),
            BudgetKind::Tokens => (1.0, "tokens"),
        };
        let whole = state.budget.of(limit).map(|whole| whole as f64 / scale);
        BudgetLine { limit, used: state.spent.of(limit) as f64 / scale, whole, unit }
    };
    BudgetKind::ALL.into_iter().map(line).collect()
}

fn proof(state: &RunState, command: &str, checked: &RunCheckResult) -> ProofView {
    ProofView {
        command: command.to_owned(),
        written_by_run: state.started.to_be_written.get(command).cloned().unwrap_or_default(),
        files: checked.files.clone(),
        proves: checked.proves.iter().map(ToString::to_string).collect(),
        code: checked.code,
        passed: checked.passed(),
        duration_ms: checked.duration_ms,
        output_sha256: checked.output.clone(),
    }
}

#[cfg(test)]
mod tests {
    use ralph_core::event::EventLine;

    use super::*;

    #[test]
    fn a_run_of_an_older_version_is_shown_as_it_was_then() {
        let events = include_str!("../../../engine/tests/it/fixtures/run-0.1/events.jsonl");
        let lines = events.lines().map(|text| EventLine::parse(text).expect("the line is one of version 0.1"));
        let state = RunState::from_events(lines).expect("the lines make a run");
        let shown = serde_json::to_string(&detail(&state, false)).expect("a view is plain data");
        assert_eq!(shown, include_str!("../../../engine/tests/it/fixtures/run-0.1/show.json").trim_end());
    }
}
