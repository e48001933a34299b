//! What a run waits for where no event says so.

use ralph_core::decide::{self, RunStep};
use ralph_core::diagnosis::DiagnosisStep;
use ralph_core::event::Event;
use ralph_core::run::RunState;

/// Says who is awaited when a diagnosis is what comes after an event. It may come by the ladder, every so many
/// iterations, or because somebody asked for it, so it is the state that tells.
pub(crate) fn waiting_for_diagnosis(state: &RunState, event: &Event) -> Option<String> {
    if state.open.is_some() || matches!(event, Event::Log { .. }) {
        return None;
    }
    let step = match decide::next(state) {
        // A run at rest is diagnosed at once when somebody asks for it.
        RunStep::Rest if state.diagnoses.under.is_some() => decide::diagnosis_step(state)?,
        step => step,
    };
    let asks = matches!(step, RunStep::Diagnose { doing: DiagnosisStep::Call { .. }, .. });
    asks.then(|| format!("waiting for a diagnosis by {}", state.started.profiles.doctor().name))
}
