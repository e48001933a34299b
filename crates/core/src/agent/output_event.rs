//! What an agent says while it works, and its last word.

use std::fmt;

use crate::money::MicroUsd;
use crate::price::TokenUsage;

/// Something an agent said or did. Texts are plain, short, and still the agent's: data, never instructions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AgentOutputEvent {
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
    Warning(String),
}

/// How an agent says its session ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentResult {
    pub ok: bool,
    pub text: String,
    /// What it counted itself; the door's count is the one that is charged.
    pub usage: Option<TokenUsage>,
    pub cost: Option<MicroUsd>,
    /// The status of the answer that ended it.
    pub status: Option<u16>,
    pub why: Option<String>,
}

/// Reads what one session prints, line by line. What it keeps is bounded, whatever is printed.
pub trait AgentOutputReader: fmt::Debug + Send {
    fn read_line(&mut self, line: &str) -> Vec<AgentOutputEvent>;
    /// Returns the result, once there is one.
    fn session_result(&self) -> Option<&AgentResult>;
    /// Returns the last words of the agent.
    fn last_text(&self) -> String;
}
