//! Applies a task revision to the state of a run, and derives the next step from open proposals.

use std::collections::BTreeSet;

use crate::control_request::TaskEdit;
use crate::event::{PinnedBox, RunStopReason};
use crate::hash::sha256;
use crate::run::RunState;
use crate::run::baseline_on_resume::proof_commands;
use crate::task;

impl RunState {
    /// Replaces the task. Boxes whose proofs changed are proved again.
    pub(crate) fn apply_task_edit(&mut self, edit: &TaskEdit) {
        // Only valid tasks are ever applied; any other text changes nothing.
        let Ok(task) = task::parse(&edit.text) else { return };
        let before = proof_commands(&self.started);
        let boxes = PinnedBox::from_task(&task);
        let same = |id: &str| {
            let proofs = |boxes: &[PinnedBox]| boxes.iter().find(|one| one.id == id).map(|one| one.proofs.clone());
            proofs(&boxes) == proofs(&self.started.boxes)
        };
        let changed: BTreeSet<String> = self.verified.iter().filter(|id| !same(id)).cloned().collect();
        self.verified.retain(|id| !changed.contains(id));
        self.reclaim.extend(changed);
        self.reclaim.retain(|id| boxes.iter().any(|one| one.id == *id));
        let test_command = task.front.test_command.clone().unwrap_or_default();
        let gates = task.front.verify_commands.clone();
        if test_command != self.started.test_command || gates != self.started.gates {
            self.gate = None;
        }
        self.started.boxes = boxes;
        self.started.title.clone_from(&task.title);
        self.started.test_command = test_command;
        self.started.gates = gates;
        self.started.protected_paths =
            task.front.protected_paths.iter().filter(|path| !path.starts_with('!')).cloned().collect();
        self.started.may_change = task.front.freed_paths();
        self.started.proof_files.clone_from(&edit.proof_files);
        self.started.pinned_parts.clone_from(&edit.pinned_parts);
        self.started.to_be_written.clone_from(&edit.to_be_written);
        self.started.task_sha256 = sha256(edit.text.as_bytes());
        self.task_revision = self.task_revision.saturating_add(1);
        self.recheck_after_edit(&before);
        if let Some(number) = edit.proposal {
            self.diagnoses.record_applied(number);
        }
    }

    /// Returns what the user can do about a run that stopped for this reason, given its open proposals.
    pub fn next_for(&self, reason: &RunStopReason) -> String {
        let run = self.id();
        match (reason, self.diagnoses.open_proposals().next()) {
            (RunStopReason::Gutter, Some(number)) => format!(
                "ralph apply {run} {number} (what the diagnosis proposes; ralph apply {run} lists all), then ralph resume {run}"
            ),
            _ => reason.next_step(run),
        }
    }
}
