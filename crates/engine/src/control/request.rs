//! Defines requests and responses of the control socket and their wire format.

use ralph_core::control_request::Control;
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// The longest accepted request id; it is written into the events.
pub(super) const ID_CAP: usize = 64;

/// A control with its own id: sent again under the same id, it is acknowledged again but applied once.
#[derive(Debug, Clone, PartialEq)]
pub struct ControlRequest {
    pub id: String,
    pub control: Control,
    /// Who sent the control.
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

/// A run's acknowledgement of a control that it carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ControlAck {
    /// The id of the request.
    pub id: String,
    /// Whether a process worked on the run and applied the control; otherwise the run rests and applies it on resume.
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
        /// The process released the run before it handled the control, which can be sent again.
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
