//! Folds the events of one run into its state and what only views need.

use std::collections::BTreeMap;

use jiff::Timestamp;
use ralph_core::event::{Event, EventLine};
use ralph_core::run::RunState;

use super::activity::{self, RunActivity};
use super::iterations::IterationTable;
use super::pending_controls::PendingControls;
use super::spend_history::SpendHistory;

/// The last result of a box's own proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastProofResult {
    Passed,
    Failed { code: i32 },
    TimedOut,
}

/// A fold of the events of one run.
#[derive(Debug, Default)]
pub struct RunView {
    /// `None` before the first event.
    pub state: Option<RunState>,
    /// What the run is doing; `None` while it rests.
    pub activity: Option<RunActivity>,
    pub iterations: IterationTable,
    pub spend: SpendHistory,
    /// The last result of each box.
    pub proof_results: BTreeMap<String, LastProofResult>,
    /// The next step that the end of the run named.
    pub next: Option<String>,
    pub controls: PendingControls,
    pub events_read: u64,
}

impl RunView {
    /// Folds one more event; `now` is when it was read, for how long the answer to a control is shown.
    pub fn apply(&mut self, line: &EventLine, now: Timestamp) {
        self.events_read += 1;
        match &mut self.state {
            // An event that does not fit the history is still shown.
            Some(state) => drop(state.apply(line)),
            None => self.state = RunState::begin(line.clone()).ok(),
        }
        self.iterations.fold(line);
        match &line.event {
            Event::IterationFinished { .. } => {
                if let Some(state) = &self.state {
                    self.spend.push(state.spent);
                }
            }
            Event::CheckFinished { proves, code, timed_out, .. } => {
                let result = match (*timed_out, *code) {
                    (true, _) => LastProofResult::TimedOut,
                    (false, 0) => LastProofResult::Passed,
                    (false, code) => LastProofResult::Failed { code },
                };
                self.proof_results.extend(proves.iter().map(|id| (id.to_string(), result)));
            }
            Event::RunFinished { next, .. } => self.next = Some(next.clone()),
            _ => (),
        }
        activity::update(&mut self.activity, line, self.state.as_ref());
        self.controls.on_event(&line.event, now);
    }
}
