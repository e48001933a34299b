//! Defines what a check proves: a gate of the task, or one of its boxes.

use std::fmt;

use serde::{Deserialize, Serialize};

const TEST_COMMAND: &str = "test";
const GATE_PREFIX: &str = "verify-";

/// What a check proves. Written as `test`, `verify-1` or the id of a box, none of which can be mistaken for another:
/// the id of a box begins with capitals, is a number, or is `c1` or `step-1`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum CheckTarget {
    /// The `test_command`.
    TestCommand,
    /// One of the `verify_commands`, numbered from 1.
    Gate(u32),
    Checkbox(String),
}

impl CheckTarget {
    /// Reports whether the check is a condition of the whole task rather than of one box.
    pub fn is_gate(&self) -> bool {
        matches!(self, Self::TestCommand | Self::Gate(_))
    }

    /// Returns the id of the box, if it is one.
    pub fn checkbox(&self) -> Option<&str> {
        match self {
            Self::Checkbox(id) => Some(id),
            Self::TestCommand | Self::Gate(_) => None,
        }
    }

    /// Joins targets for a line of text.
    pub fn join(targets: &[Self], separator: &str) -> String {
        targets.iter().map(ToString::to_string).collect::<Vec<_>>().join(separator)
    }
}

impl fmt::Display for CheckTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TestCommand => f.write_str(TEST_COMMAND),
            Self::Gate(number) => write!(f, "{GATE_PREFIX}{number}"),
            Self::Checkbox(id) => f.write_str(id),
        }
    }
}

impl From<String> for CheckTarget {
    fn from(text: String) -> Self {
        let gate = text.strip_prefix(GATE_PREFIX).filter(|number| !number.starts_with(['0', '+']));
        match gate.and_then(|number| number.parse().ok()) {
            Some(number) => Self::Gate(number),
            None if text == TEST_COMMAND => Self::TestCommand,
            None => Self::Checkbox(text),
        }
    }
}

impl From<&str> for CheckTarget {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<CheckTarget> for String {
    fn from(target: CheckTarget) -> Self {
        target.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_written_as_they_are_read() {
        for (text, want) in [
            ("test", CheckTarget::TestCommand),
            ("verify-1", CheckTarget::Gate(1)),
            ("verify-12", CheckTarget::Gate(12)),
            ("verify-", CheckTarget::Checkbox("verify-".to_owned())),
            ("verify-0", CheckTarget::Checkbox("verify-0".to_owned())),
            ("verify-01", CheckTarget::Checkbox("verify-01".to_owned())),
            ("verify-+1", CheckTarget::Checkbox("verify-+1".to_owned())),
            ("tests", CheckTarget::Checkbox("tests".to_owned())),
            ("M1.1", CheckTarget::Checkbox("M1.1".to_owned())),
        ] {
            assert_eq!(CheckTarget::from(text), want);
            assert_eq!(want.to_string(), text);
            assert_eq!(want.is_gate(), want.checkbox().is_none());
        }
    }
}
