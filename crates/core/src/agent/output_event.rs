//! Defines the events and the result that the output of an agent is parsed into.

use std::fmt;

use crate::money::MicroUsd;
use crate::price::TokenUsage;

/// Something an agent reported. Texts are plain, short and untrusted: data, never instructions.
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
    /// A model call failed and is retried.
    Retry {
        status: Option<u16>,
        why: String,
    },
    /// Something went wrong that did not end the session.
    Warning(String),
}

/// The end of a session as the agent reports it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AgentResult {
    pub ok: bool,
    pub text: String,
    /// Its own count; the egress proxy's count is the one that is charged.
    pub usage: Option<TokenUsage>,
    pub cost: Option<MicroUsd>,
    /// The HTTP status of the response that ended it.
    pub status: Option<u16>,
    pub why: Option<String>,
}

/// Reads the output of one session, line by line. Its memory is bounded, whatever the agent prints.
pub trait AgentOutputReader: fmt::Debug + Send {
    fn read_line(&mut self, line: &str) -> Vec<AgentOutputEvent>;
    /// Returns the result, if there is one yet.
    fn session_result(&self) -> Option<&AgentResult>;
    /// Returns the last text of the agent.
    fn last_text(&self) -> String;
}
