//! Every agent that is built in.

use super::claude::Claude;
use super::codex::Codex;
use super::contract::Agent;

/// Returns every agent that is built in.
pub fn all() -> &'static [&'static dyn Agent] {
    &[&Claude, &Codex]
}

/// Returns the built-in agent of a name. `custom` is none of them: it is made by [`super::Custom::new`].
pub fn named(name: &str) -> Option<&'static dyn Agent> {
    all().iter().copied().find(|agent| agent.name() == name)
}
