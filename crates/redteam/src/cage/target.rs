//! What is attacked.

use ralph_sandbox::Backend;
use ralph_sandbox::embedded::EmbeddedOptions;

/// What is attacked.
#[derive(Debug)]
pub enum RedteamTarget<'a> {
    /// Cages of the embedded backend, set up like this. The suite makes its own below a folder of its own, so that it can
    /// also make them with a wall left out.
    Cage(EmbeddedOptions),
    /// Any other backend; cases that need a wall to be left out are skipped.
    Other(&'a dyn Backend),
}

impl RedteamTarget<'_> {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Cage(_) => "embedded",
            Self::Other(backend) => backend.capabilities().name,
        }
    }
}
