//! Red first over the life of a run: when the base commit is asked again, and what a person's resume changes about its
//! answer.

use std::collections::BTreeSet;

use super::State;
use crate::decide;
use crate::event::{BaselineVerdict, Started};

impl State {
    /// Returns why the base commit makes the run pointless, when nothing but another task can change that.
    ///
    /// A program that is missing can be installed and a host be allowed, so the base is asked again after a resume. A proof
    /// that passes without any work passes again.
    pub fn pointless(&self) -> Option<&str> {
        self.baseline_refused.as_deref().filter(|_| !self.lacked_something())
    }

    /// Asks the base commit again if what refused the run lies outside of its task.
    pub(super) fn resumed_after_refusal(&mut self) {
        if self.lacked_something() {
            self.ask_base_again();
        }
    }

    /// Asks the base commit again if another task is judged by other commands, or was refused.
    pub(crate) fn judged_anew(&mut self, before: &BTreeSet<String>) {
        if self.baseline_refused.is_some() || *before != judges(&self.started) {
            self.ask_base_again();
        }
    }

    fn lacked_something(&self) -> bool {
        let lacking = |verdict| matches!(verdict, BaselineVerdict::MissingTool | BaselineVerdict::DeniedHost);
        self.baseline.iter().flatten().any(|check| lacking(check.verdict))
    }

    fn ask_base_again(&mut self) {
        self.baseline = None;
        self.baseline_refused = None;
    }
}

/// Returns every command that judges the work.
pub(crate) fn judges(started: &Started) -> BTreeSet<String> {
    decide::proof_due(started).into_iter().map(|due| due.command).collect()
}
