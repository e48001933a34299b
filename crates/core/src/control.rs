//! Everything one may ask of a live run, as one closed list.
//!
//! Controls enter through the run's `control.sock`, the same way from the command line and the web, and each is
//! acknowledged by an event.

use serde::{Deserialize, Serialize};

/// A wish for a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Control {
    Pause,
    Resume,
    Rotate {
        why: Option<String>,
    },
    Stop,
    SetProfile {
        name: String,
    },
    Note {
        text: String,
    },
    Guardrail {
        text: String,
    },
    EditTask {
        text: String,
    },
    Diagnose,
    ApplyProposal {
        number: u32,
    },
    RaiseBudget {
        iterations: u32,
        minutes: u64,
        cost_usd: f64,
        tokens: u64,
    },
    /// Adds a rule or a preset to what the run may reach.
    AllowHost {
        host: String,
    },
    /// Adds a rule or a preset to what the run may not reach, whatever is allowed.
    DenyHost {
        host: String,
    },
}

impl Control {
    /// Tells whether it only leaves words for the model.
    pub fn is_words(&self) -> bool {
        matches!(self, Self::Note { .. } | Self::Guardrail { .. })
    }

    /// Tells whether it changes what the run may reach.
    pub fn is_policy(&self) -> bool {
        matches!(self, Self::AllowHost { .. } | Self::DenyHost { .. })
    }

    /// Returns the tag the control is written with.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Rotate { .. } => "rotate",
            Self::Stop => "stop",
            Self::SetProfile { .. } => "set-profile",
            Self::Note { .. } => "note",
            Self::Guardrail { .. } => "guardrail",
            Self::EditTask { .. } => "edit-task",
            Self::Diagnose => "diagnose",
            Self::ApplyProposal { .. } => "apply-proposal",
            Self::RaiseBudget { .. } => "raise-budget",
            Self::AllowHost { .. } => "allow-host",
            Self::DenyHost { .. } => "deny-host",
        }
    }
}
