//! Defines the backend that is attacked.

use std::path::PathBuf;

use ralph_sandbox::Backend;
use ralph_sandbox::embedded::{EmbeddedOptions, NAME as EMBEDDED};

/// The backend that is attacked.
#[derive(Debug)]
pub enum RedteamTarget<'a> {
    /// Cages of the embedded backend with these options. The suite creates them in its own folder, so that it can
    /// also create them with a mechanism disabled.
    Cage(EmbeddedOptions),
    /// Any other backend; cases that need a mechanism disabled are skipped.
    Other(&'a dyn Backend),
}

impl<'a> RedteamTarget<'a> {
    /// Returns the target for a backend; `dir` is for the sandboxes that the suite creates.
    pub fn for_backend(backend: &'a dyn Backend, dir: PathBuf) -> Self {
        match backend.capabilities().name {
            EMBEDDED => Self::Cage(EmbeddedOptions { dir, ..EmbeddedOptions::default() }),
            _ => Self::Other(backend),
        }
    }

    /// Returns whether the suite creates the attacked sandboxes itself, with everything it needs in them.
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
