//! The entry of a run in a list of runs: the small part of its state that is saved in a file beside its events.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{RunState, RunStatus};
use crate::identifiers::TaskBranch;
use crate::money::MicroUsd;

/// One run in a list of runs. Whether a process is working on it is not here: that changes without an event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunListing {
    pub run: String,
    pub status: RunStatus,
    pub task_id: String,
    pub title: String,
    pub repo: String,
    pub branch: TaskBranch,
    pub iteration: u32,
    pub max_iterations: u32,
    pub boxes_verified: usize,
    pub boxes: usize,
    pub cost: MicroUsd,
    pub max_cost: Option<MicroUsd>,
    pub tokens: u64,
    pub loop_score: Option<f64>,
    pub profile: String,
    pub pull_request: Option<String>,
    pub started_at: Timestamp,
    pub last_at: Timestamp,
}

impl RunListing {
    pub fn of(state: &RunState) -> Self {
        let started = &state.started;
        Self {
            run: started.run.clone(),
            status: state.status.clone(),
            task_id: started.task_id.clone(),
            title: started.title.clone(),
            repo: started.repo.clone(),
            branch: started.branch.clone(),
            iteration: state.spent.iterations,
            max_iterations: state.budget.iterations,
            boxes_verified: state.verified.len(),
            boxes: started.boxes.len(),
            cost: state.spent.cost,
            max_cost: state.budget.cost,
            tokens: state.spent.tokens,
            loop_score: state.scores.back().copied(),
            profile: state.profile.clone(),
            pull_request: state.pull_request.as_ref().map(|pr| pr.url.clone()),
            started_at: state.started_at,
            last_at: state.last_at,
        }
    }
}
