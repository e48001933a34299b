//! What an agent says while it works, and its last word.

use std::fmt;

use crate::money::Micros;
use crate::price::Usage;

/// Something an agent said or did. Texts are plain, short, and still the agent's: data, never instructions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    Text(String),
    Tool {
        name: String,
        brief: String,
    },
    ToolDone {
        name: String,
        ok: bool,
        brief: String,
    },
    /// A call of the model failed and is tried again.
    Retry {
        status: Option<u16>,
        why: String,
    },
    /// Something went wrong that did not end the session.
    Trouble(String),
}

/// How an agent says its session ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Finished {
    pub ok: bool,
    pub text: String,
    /// What it counted itself; the door's count is the one that is charged.
    pub usage: Option<Usage>,
    pub cost: Option<Micros>,
    /// The status of the answer that ended it.
    pub status: Option<u16>,
    pub why: Option<String>,
}

/// Reads what one session prints, line by line. What it keeps is bounded, whatever is printed.
pub trait Reader: fmt::Debug + Send {
    fn line(&mut self, line: &str) -> Vec<Said>;
    /// Returns the result, once there is one.
    fn finished(&self) -> Option<&Finished>;
    /// Returns the last words of the agent.
    fn text(&self) -> String;
}
