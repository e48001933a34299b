//! Red first over the life of a run: when the base commit is asked again, and what a person's resume changes about its
//! answer.

use std::collections::BTreeSet;

use super::RunState;
use crate::decide;
use crate::event::{BaselineVerdict, RunStart};

impl RunState {
    /// Returns why the base commit makes the run pointless, when nothing but another task can change that.
    ///
    /// A program that is missing can be installed and a host be allowed, so the base is asked again after a resume. A proof
    /// that passes without any work passes again.
    pub fn baseline_blocker(&self) -> Option<&str> {
        self.baseline_refused.as_deref().filter(|_| !self.has_fixable_refusal())
    }

    /// Asks the base commit again if what refused the run lies outside of its task.
    pub(super) fn recheck_after_resume(&mut self) {
        if self.has_fixable_refusal() {
            self.reset_baseline();
        }
    }

    /// Asks the base commit again if another task is judged by other commands, or was refused.
    pub(crate) fn recheck_after_edit(&mut self, before: &BTreeSet<String>) {
        if self.baseline_refused.is_some() || *before != proof_commands(&self.started) {
            self.reset_baseline();
        }
    }

    fn has_fixable_refusal(&self) -> bool {
        let lacking = |verdict| matches!(verdict, BaselineVerdict::MissingTool | BaselineVerdict::DeniedHost);
        self.baseline.iter().flatten().any(|check| lacking(check.verdict))
    }

    fn reset_baseline(&mut self) {
        self.baseline = None;
        self.baseline_refused = None;
    }
}

/// Returns every command that judges the work.
pub(crate) fn proof_commands(started: &RunStart) -> BTreeSet<String> {
    decide::proof_due(started).into_iter().map(|due| due.command).collect()
}
