//! Every agent that is built in.

use super::aider::Aider;
use super::claude::Claude;
use super::codex::Codex;
use super::contract::Agent;
use super::copilot::Copilot;
use super::cursor::Cursor;
use super::gemini::Gemini;
use super::goose::Goose;
use super::opencode::Opencode;
use super::qwen::Qwen;

/// Returns every agent that is built in.
pub fn all() -> &'static [&'static dyn Agent] {
    &[&Claude, &Codex, &Gemini, &Opencode, &Cursor, &Qwen, &Copilot, &Aider, &Goose]
}

/// Returns the built-in agent of a name. `custom` is none of them: it is made by [`super::Custom::new`].
pub fn named(name: &str) -> Option<&'static dyn Agent> {
    all().iter().copied().find(|agent| agent.name() == name)
}
