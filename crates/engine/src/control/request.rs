//! What is sent to a run and what comes back, and how both are written on the control socket.

use ralph_core::control::Control;
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// The longest request id that is taken; it is written into the events.
pub(super) const ID_CAP: usize = 64;

/// A control with an id of its own: sent again under the same id, it is acknowledged again and applied once.
#[derive(Debug, Clone, PartialEq)]
pub struct ControlRequest {
    pub id: String,
    pub control: Control,
    /// Who asked.
    pub by: String,
}

impl ControlRequest {
    /// Gives a control a new random id.
    pub fn new(control: Control, by: &str) -> Result<Self, Error> {
        let mut random = [0_u8; 8];
        getrandom::fill(&mut random).map_err(|_| Error::Random)?;
        let id = format!("{:016x}", u64::from_be_bytes(random));
        Ok(Self { id, control, by: by.to_owned() })
    }
}

/// What a run answered to a control that it carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlAck {
    /// The id of the request.
    pub id: String,
    /// A process worked on the run and carried it out; otherwise the run rests and has it from its resume on.
    pub live: bool,
}

/// A request as one line of JSON. Earlier versions send no id, and simple clients no name.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RequestLine {
    pub(super) control: Control,
    #[serde(default = "unnamed")]
    pub(super) by: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
}

fn unnamed() -> String {
    "an unnamed client".to_owned()
}

impl From<&ControlRequest> for RequestLine {
    fn from(request: &ControlRequest) -> Self {
        Self { control: request.control.clone(), by: request.by.clone(), id: Some(request.id.clone()) }
    }
}

/// A response as one line of JSON.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ResponseLine {
    Ok,
    Refused {
        why: String,
        /// The process let go of the run before it got to the control, which can be sent again.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        retry: bool,
    },
}

impl ResponseLine {
    pub(super) fn refused(why: impl Into<String>) -> Self {
        Self::Refused { why: why.into(), retry: false }
    }

    pub(super) fn retry(why: impl Into<String>) -> Self {
        Self::Refused { why: why.into(), retry: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_earlier_versions_are_read() {
        let line: RequestLine = serde_json::from_str(r#"{"control":{"type":"pause"},"by":"a person"}"#).unwrap();
        assert_eq!((line.control, line.by.as_str(), line.id), (Control::Pause, "a person", None));
        let line: RequestLine = serde_json::from_str(r#"{"control":{"type":"pause"}}"#).unwrap();
        assert_eq!(line.by, "an unnamed client");
        let refused: ResponseLine = serde_json::from_str(r#"{"refused":{"why":"no"}}"#).unwrap();
        assert_eq!(refused, ResponseLine::refused("no"));
        assert_eq!(serde_json::to_string(&refused).unwrap(), r#"{"refused":{"why":"no"}}"#);
    }
}
