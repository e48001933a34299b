//! Derives what a run is doing now from its last events.

use jiff::Timestamp;
use ralph_core::decide_next_step::{self, RunStep};
use ralph_core::diagnosis::DiagnosisStep;
use ralph_core::event::{CheckStage, Event, EventLine, ModelCallOutcome};
use ralph_core::run::RunState;
use ralph_core::text::first_line;

/// The longest activity text that is kept, in bytes.
const MAX_ACTIVITY_BYTES: usize = 200;

/// What a run is doing, and since when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunActivity {
    pub text: String,
    pub since: Timestamp,
}

/// How an event changes the activity.
enum ActivityChange {
    Unchanged,
    /// The activity has ended.
    Resting,
    Doing(String),
}

/// Updates the activity with an event that the state has folded already.
pub(super) fn update(activity: &mut Option<RunActivity>, line: &EventLine, state: Option<&RunState>) {
    let diagnosis = state.and_then(|state| waiting_for_diagnosis(state, &line.event));
    match diagnosis.map_or_else(|| change_by(&line.event, state), ActivityChange::Doing) {
        ActivityChange::Unchanged => (),
        ActivityChange::Resting => *activity = None,
        ActivityChange::Doing(text) => *activity = Some(RunActivity { text, since: line.at }),
    }
}

fn change_by(event: &Event, state: Option<&RunState>) -> ActivityChange {
    let text = match event {
        Event::RunStarted(_) => "preparing the sandbox".to_owned(),
        Event::SandboxReady { .. } => "checking the proofs on the base commit".to_owned(),
        Event::IterationStarted { profile, .. } => format!("waiting for {profile}"),
        Event::ActionStarted { brief, .. } => first_line(brief, MAX_ACTIVITY_BYTES).to_owned(),
        Event::CheckFinished { stage: CheckStage::Proof, .. } | Event::Pushed { .. } => {
            "proving in a fresh sandbox".to_owned()
        }
        Event::ActionFinished { .. } | Event::CheckFinished { .. } => "checking".to_owned(),
        // An agent continues after each of its own calls.
        Event::ModelCalled { answer, .. } if !matches!(answer, ModelCallOutcome::Through { .. }) => {
            "checking".to_owned()
        }
        Event::Resumed { .. } => "going on".to_owned(),
        Event::DiagnosisWritten { .. } if state.is_some_and(|state| state.status.is_active()) => "going on".to_owned(),
        Event::DiagnosisWritten { .. } | Event::Paused { .. } | Event::RunFinished { .. } => {
            return ActivityChange::Resting;
        }
        Event::ModelCalled { .. }
        | Event::BaselineChecked { .. }
        | Event::Log { .. }
        | Event::IterationFinished { .. }
        | Event::GutterScored { .. }
        | Event::MitigationApplied { .. }
        | Event::BudgetWarned { .. }
        | Event::CommitImported { .. }
        | Event::PrOpened { .. }
        | Event::PrUpdated { .. }
        | Event::CiChanged(_)
        | Event::PolicyDenied { .. }
        | Event::ControlApplied { .. }
        | Event::AuditAnchored { .. } => return ActivityChange::Unchanged,
    };
    ActivityChange::Doing(text)
}

/// Returns the activity text if a diagnosis comes next after an event. It may be requested by the ladder, every few
/// iterations, or by the user, so this depends on the state.
fn waiting_for_diagnosis(state: &RunState, event: &Event) -> Option<String> {
    if state.open.is_some() || matches!(event, Event::Log { .. }) {
        return None;
    }
    let step = match decide_next_step::decide(state) {
        // A run at rest is diagnosed at once when the user asks for it.
        RunStep::Rest if state.diagnoses.under.is_some() => decide_next_step::diagnosis_step(state)?,
        step => step,
    };
    let asks = matches!(step, RunStep::Diagnose { doing: DiagnosisStep::Call { .. }, .. });
    asks.then(|| format!("waiting for a diagnosis by {}", state.started.profiles.doctor().name))
}
