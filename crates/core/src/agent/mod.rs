//! Describes the coding agents that ralph supports: how to start each headlessly, parse its output and classify its
//! end.
//!
//! Nothing is run here. `engine::agent` finds and installs the programs, `engine::run` starts them in a sandbox.

mod aider;
mod catalogue;
mod claude;
mod claude_stream;
mod codex;
mod copilot;
mod cursor;
mod custom;
mod definition;
mod error_phrases;
mod gemini;
mod goose;
mod line_splitter;
mod opencode;
mod output_event;
mod plain_text;
mod qwen;
mod session_outcome;
mod stream_state;

pub use catalogue::{all, by_name};
pub use custom::{BadTemplate, CustomAgent};
pub use definition::{Agent, AgentInvocation, AgentPackage, AgentSessionParams, AgentTestLevel, CredentialGuarantee};
pub use line_splitter::LineSplitter;
pub use output_event::{AgentOutputEvent, AgentOutputReader, AgentResult};
pub use session_outcome::{AgentSessionEnd, ObservedModelCall, SessionOutcome, classify_session_end, should_abort};

#[cfg(test)]
mod tests;
