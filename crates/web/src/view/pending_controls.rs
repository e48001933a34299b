//! Tracks the controls that the run has not answered yet, and the last answer. Only an event counts as an answer.

use jiff::Timestamp;
use ralph_core::control_request::Control;
use ralph_core::event::Event;

/// How long a good answer stays on the screen.
const SUCCESS_NOTICE_MS: i64 = 8_000;

/// How long a refusal stays.
const ERROR_NOTICE_MS: i64 = 60_000;

/// A control that was sent.
#[derive(Debug, Clone, PartialEq)]
pub struct PendingControl {
    pub control: Control,
    pub since: Timestamp,
}

/// The last answer, as text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlNotice {
    pub text: String,
    pub good: bool,
    since: Timestamp,
}

/// All pending controls, oldest first.
#[derive(Debug, Default)]
pub struct PendingControls {
    pending: Vec<PendingControl>,
    notice: Option<ControlNotice>,
}

impl PendingControls {
    /// Adds a pending control; returns `false` when the same control is pending already.
    pub fn add(&mut self, control: &Control, now: Timestamp) -> bool {
        if self.pending.iter().any(|pending| pending.control.kind() == control.kind()) {
            self.refuse(format!("already asked for: {}", progress_text(control)), now);
            return false;
        }
        self.notice = None;
        self.pending.push(PendingControl { control: control.clone(), since: now });
        true
    }

    /// Handles an event, which may be the answer to a pending control.
    pub fn on_event(&mut self, event: &Event, now: Timestamp) {
        let answered = self.pending.iter().position(|pending| answers(event, &pending.control));
        if let Some(at) = answered {
            let PendingControl { control, .. } = self.pending.remove(at);
            self.set_notice(done_text(&control), true, now);
        }
        if matches!(event, Event::RunFinished { .. }) {
            // A run that has ended answers nothing more.
            self.pending.clear();
        }
    }

    /// Handles the acknowledgement of a control. A control is done only at its event, where there is one to wait for.
    pub fn on_answer(&mut self, kind: &str, outcome: Result<(), String>, resting: bool, now: Timestamp) {
        let at = self.pending.iter().position(|pending| pending.control.kind() == kind);
        match (outcome, at) {
            (Ok(()), Some(at)) if resting || !needs_event(&self.pending[at].control) => {
                let PendingControl { control, .. } = self.pending.remove(at);
                self.set_notice(done_text(&control), true, now);
            }
            (Ok(()), _) => (),
            (Err(why), at) => {
                if let Some(at) = at {
                    self.pending.remove(at);
                }
                self.refuse(why, now);
            }
        }
    }

    pub fn refuse(&mut self, why: String, now: Timestamp) {
        self.set_notice(why, false, now);
    }

    fn set_notice(&mut self, text: String, good: bool, now: Timestamp) {
        self.notice = Some(ControlNotice { text, good, since: now });
    }

    /// Removes an answer that was shown long enough.
    pub fn expire_notice(&mut self, now: Timestamp) {
        let old = |notice: &ControlNotice| {
            let age = now.as_millisecond() - notice.since.as_millisecond();
            age > if notice.good { SUCCESS_NOTICE_MS } else { ERROR_NOTICE_MS }
        };
        if self.notice.as_ref().is_some_and(old) {
            self.notice = None;
        }
    }

    pub fn dismiss_notice(&mut self) {
        self.notice = None;
    }

    pub fn pending(&self) -> &[PendingControl] {
        &self.pending
    }

    pub fn notice(&self) -> Option<&ControlNotice> {
        self.notice.as_ref()
    }
}

/// Returns whether a control takes effect only at its event, not at the acknowledgement.
fn needs_event(control: &Control) -> bool {
    matches!(control, Control::Pause | Control::Stop)
}

fn answers(event: &Event, control: &Control) -> bool {
    match control {
        Control::Pause => matches!(event, Event::Paused { .. }),
        Control::Stop => matches!(event, Event::RunFinished { .. }),
        Control::Resume => matches!(event, Event::Resumed { .. }),
        _ => matches!(event, Event::ControlApplied { control: applied, .. } if applied.kind() == control.kind()),
    }
}

/// Describes a control that is pending.
pub fn progress_text(control: &Control) -> String {
    match control {
        Control::Pause => "pausing after the action under way".to_owned(),
        Control::Resume => "going on".to_owned(),
        Control::Rotate { .. } => "asking for a fresh session".to_owned(),
        Control::Stop => "stopping".to_owned(),
        Control::SetProfile { name } => format!("changing to profile {name}"),
        Control::Note { .. } => "leaving the note".to_owned(),
        Control::Guardrail { .. } => "putting up the sign".to_owned(),
        Control::Diagnose => "asking for a diagnosis".to_owned(),
        Control::ApplyProposal { number } => format!("applying proposal {number}"),
        Control::EditTask { .. }
        | Control::RaiseBudget { .. }
        | Control::AllowHost { .. }
        | Control::DenyHost { .. } => control.kind().to_owned(),
    }
}

fn done_text(control: &Control) -> String {
    match control {
        Control::Pause => "it is paused".to_owned(),
        Control::Resume => "it goes on".to_owned(),
        Control::Rotate { .. } => "the next iteration starts with a fresh session".to_owned(),
        Control::Stop => "it is stopped; its commits are kept".to_owned(),
        Control::SetProfile { name } => format!("from the next iteration on it works with {name}"),
        Control::Note { .. } => "the model reads your note in the next iteration".to_owned(),
        Control::Guardrail { .. } => "the model sees your sign from the next iteration on".to_owned(),
        Control::Diagnose => "a diagnosis was asked for".to_owned(),
        Control::ApplyProposal { number } => format!("proposal {number} is applied"),
        Control::EditTask { .. }
        | Control::RaiseBudget { .. }
        | Control::AllowHost { .. }
        | Control::DenyHost { .. } => format!("{} is done", control.kind()),
    }
}
