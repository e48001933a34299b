//! Decides when the baseline of a run is run again, and how a resume changes its result.

use std::collections::BTreeSet;

use super::RunState;
use crate::decide_next_step;
use crate::event::{BaselineVerdict, RunStart};

impl RunState {
    /// Returns why the base commit makes the run pointless, when only a different task can change that.
    ///
    /// A missing program can be installed and a host can be allowed, so the baseline is run again after a resume. A
    /// proof that passes without any work would pass again.
    pub fn baseline_blocker(&self) -> Option<&str> {
        self.baseline_refused.as_deref().filter(|_| !self.has_fixable_refusal())
    }

    /// Schedules another baseline if the reason for the refusal lies outside the task.
    pub(super) fn recheck_after_resume(&mut self) {
        if self.has_fixable_refusal() {
            self.reset_baseline();
        }
    }

    /// Schedules another baseline if the edited task is proved by different commands, or was refused.
    pub(crate) fn recheck_after_edit(&mut self, before: &BTreeSet<String>) {
        if self.baseline_refused.is_some() || *before != proof_commands(&self.started) {
            self.reset_baseline();
        }
    }

    fn has_fixable_refusal(&self) -> bool {
        let lacking = |verdict| {
            matches!(verdict, BaselineVerdict::MissingTool | BaselineVerdict::DeniedHost | BaselineVerdict::CannotStart)
        };
        self.baseline.iter().flatten().any(|check| lacking(check.verdict))
    }

    fn reset_baseline(&mut self) {
        self.baseline = None;
        self.baseline_refused = None;
    }
}

/// Returns every command that decides about the work.
pub(crate) fn proof_commands(started: &RunStart) -> BTreeSet<String> {
    decide_next_step::proof_due(started).into_iter().map(|due| due.command).collect()
}
