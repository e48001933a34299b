//! What is attacked.

use std::path::PathBuf;

use ralph_sandbox::Backend;
use ralph_sandbox::embedded::{EmbeddedOptions, NAME as EMBEDDED};

/// What is attacked.
#[derive(Debug)]
pub enum RedteamTarget<'a> {
    /// Cages of the embedded backend, set up like this. The suite makes its own below a folder of its own, so that it can
    /// also make them with a wall left out.
    Cage(EmbeddedOptions),
    /// Any other backend; cases that need a wall to be left out are skipped.
    Other(&'a dyn Backend),
}

impl<'a> RedteamTarget<'a> {
    /// Returns how a backend is attacked, with `dir` for what the suite makes of its own.
    pub fn for_backend(backend: &'a dyn Backend, dir: PathBuf) -> Self {
        match backend.capabilities().name {
            EMBEDDED => Self::Cage(EmbeddedOptions { dir, ..EmbeddedOptions::default() }),
            _ => Self::Other(backend),
        }
    }

    /// Returns whether the suite makes the attacked sandboxes itself, with what it needs in them.
    pub fn is_own_cage(&self) -> bool {
        matches!(self, Self::Cage(_))
    }

    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Cage(_) => EMBEDDED,
            Self::Other(backend) => backend.capabilities().name,
        }
    }
}
