//! Defines the kinds of actions, as written into events and action logs.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The kind of an action: one of those a model may ask for, or the whole session of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum ActionKind {
    Run,
    Patch,
    Write,
    Commit,
    Rotate,
    Pause,
    StopSuccess,
    StopFailure,
    /// The one action of an agent's iteration.
    Session,
    /// A kind of another version of ralph. It has no effect and is written back unchanged.
    Other(String),
}

impl ActionKind {
    const KNOWN: [Self; 9] = [
        Self::Run,
        Self::Patch,
        Self::Write,
        Self::Commit,
        Self::Rotate,
        Self::Pause,
        Self::StopSuccess,
        Self::StopFailure,
        Self::Session,
    ];

    pub fn as_str(&self) -> &str {
        match self {
            Self::Run => "run",
            Self::Patch => "patch",
            Self::Write => "write",
            Self::Commit => "commit",
            Self::Rotate => "rotate",
            Self::Pause => "pause",
            Self::StopSuccess => "stop_success",
            Self::StopFailure => "stop_failure",
            Self::Session => "session",
            Self::Other(kind) => kind,
        }
    }

    /// Returns whether the action only decides how the iteration or the run continues, and touches no file.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Rotate | Self::Pause | Self::StopSuccess | Self::StopFailure)
    }
}

impl fmt::Display for ActionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<String> for ActionKind {
    fn from(text: String) -> Self {
        Self::KNOWN.into_iter().find(|kind| kind.as_str() == text).unwrap_or(Self::Other(text))
    }
}

impl From<ActionKind> for String {
    fn from(kind: ActionKind) -> Self {
        match kind {
            ActionKind::Other(kind) => kind,
            known => known.as_str().to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_round_trip_as_strings() {
        for kind in ActionKind::KNOWN {
            let text = serde_json::to_string(&kind).unwrap();
            assert_eq!(text, format!("\"{kind}\""));
            assert_eq!(serde_json::from_str::<ActionKind>(&text).unwrap(), kind);
        }
        let newer: ActionKind = serde_json::from_str("\"teleport\"").unwrap();
        assert_eq!(newer, ActionKind::Other("teleport".to_owned()));
        assert_eq!(serde_json::to_string(&newer).unwrap(), "\"teleport\"");
    }
}
