//! Every agent that is built in.

use super::aider::AiderAgent;
use super::claude::ClaudeAgent;
use super::codex::CodexAgent;
use super::contract::Agent;
use super::copilot::CopilotAgent;
use super::cursor::CursorAgent;
use super::gemini::GeminiAgent;
use super::goose::GooseAgent;
use super::opencode::OpencodeAgent;
use super::qwen::QwenAgent;

/// Returns every agent that is built in.
pub fn all() -> &'static [&'static dyn Agent] {
    &[
        &ClaudeAgent,
        &CodexAgent,
        &GeminiAgent,
        &OpencodeAgent,
        &CursorAgent,
        &QwenAgent,
        &CopilotAgent,
        &AiderAgent,
        &GooseAgent,
    ]
}

/// Returns the built-in agent of a name. `custom` is none of them: it is made by [`super::Custom::new`].
pub fn by_name(name: &str) -> Option<&'static dyn Agent> {
    all().iter().copied().find(|agent| agent.name() == name)
}
