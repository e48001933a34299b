//! Defines the exit codes of the program; `ralph help exit-codes` prints this table.

use serde::{Deserialize, Serialize};

/// The exit code of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RalphExitCode {
    Success,
    Failed,
    Usage,
    Budget,
    Auth,
    Paused,
    NotReady,
    Interrupted,
    /// The exit code of a command in a sandbox, passed on unchanged.
    Command(u8),
}

impl RalphExitCode {
    pub const ALL: [Self; 8] = [
        Self::Success,
        Self::Failed,
        Self::Usage,
        Self::Budget,
        Self::Auth,
        Self::Paused,
        Self::NotReady,
        Self::Interrupted,
    ];

    pub fn code(self) -> u8 {
        match self {
            Self::Success => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Budget => 3,
            Self::Auth => 4,
            Self::Paused => 5,
            Self::NotReady => 6,
            Self::Interrupted => 130,
            Self::Command(code) => code,
        }
    }

    pub fn meaning(self) -> &'static str {
        match self {
            Self::Success => "verified success: every checkbox was re-proved by ralph",
            Self::Failed => "failed: the run or the command did not reach its goal",
            Self::Usage => "usage, configuration or lint error: nothing was started",
            Self::Budget => "budget spent: iterations, time, cost or tokens",
            Self::Auth => "needs authentication: a credential is missing, wrong or expired",
            Self::Paused => "paused: a person has to decide something",
            Self::NotReady => "the host or the sandbox backend is not ready",
            Self::Interrupted => "interrupted by Ctrl-C",
            Self::Command(_) => "the exit code of the command in the sandbox",
        }
    }
}
