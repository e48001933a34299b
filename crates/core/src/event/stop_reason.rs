//! Defines why a run is not running and how it ended, with the words for both.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::budget::BudgetKind;

/// Why a run is not running.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum RunStopReason {
    Budget {
        limit: BudgetKind,
    },
    Gutter,
    NeedsDecision {
        why: String,
    },
    Auth {
        profile: String,
    },
    Quota {
        until: Timestamp,
    },
    /// The provider does not answer and gives no reset time: the call is repeated at `until`.
    Outage {
        until: Timestamp,
        why: String,
    },
    SandboxLost,
    /// The sandbox exists but its clone can no longer be used.
    SandboxBroken {
        why: String,
    },
    /// Something on the host failed: a push, a full disk, a program that is missing.
    Host {
        why: String,
    },
    VerificationFailed {
        why: String,
    },
    Findings {
        why: String,
    },
    GaveUp {
        why: String,
    },
    Asked,
    Interrupted,
    Provider {
        why: String,
    },
    Script {
        why: String,
    },
    Baseline {
        why: String,
    },
}

impl RunStopReason {
    /// Describes in a few words why a run is not running.
    pub fn describe(&self) -> String {
        match self {
            Self::Budget { limit } => format!("budget: {limit}"),
            Self::Gutter => "gutter: it went in circles".to_owned(),
            Self::NeedsDecision { why } => format!("needs a decision: {why}"),
            Self::Auth { profile } => format!("auth: the provider refused the key of profile `{profile}`"),
            Self::Quota { until } => format!("quota until {until}"),
            Self::Outage { until, why } => format!("no answer from the provider, next attempt at {until}: {why}"),
            Self::SandboxLost => "the sandbox is gone".to_owned(),
            Self::SandboxBroken { why } => format!("the clone in the sandbox is broken: {why}"),
            Self::Host { why } => format!("host error: {why}"),
            Self::VerificationFailed { why } => format!("verification failed: {why}"),
            Self::Findings { why } => format!("the import was blocked: {why}"),
            Self::GaveUp { why } => format!("the model gave up: {why}"),
            Self::Asked => "a person asked for it".to_owned(),
            Self::Interrupted => "interrupted".to_owned(),
            Self::Provider { why } => format!("provider trouble: {why}"),
            Self::Script { why } => format!("script: {why}"),
            Self::Baseline { why } => format!("red first: {why}"),
        }
    }

    /// Returns the next step for the user, with a command to paste.
    pub fn next_step(&self, run: &str) -> String {
        match self {
            Self::Budget { limit } => format!("ralph resume {run} {}", limit.raise_flag()),
            Self::Gutter => format!(
                "ralph guardrail {run} \"what to do instead\" (or ralph diagnose {run}), then ralph resume {run}"
            ),
            Self::NeedsDecision { .. } => format!("ralph note {run} \"your decision\", then ralph resume {run}"),
            Self::Auth { .. } => format!("set the key of the profile, then ralph resume {run}"),
            Self::Quota { .. } | Self::Outage { .. } => {
                format!("nothing: it goes on by itself, or ralph resume {run}")
            }
            Self::SandboxLost | Self::SandboxBroken { .. } => format!("ralph resume --recreate {run}"),
            Self::Findings { .. } => format!("ralph show {run}, then ralph rewind {run} N or ralph resume {run}"),
            Self::VerificationFailed { .. } | Self::GaveUp { .. } => format!("ralph logs {run}"),
            Self::Asked | Self::Interrupted | Self::Provider { .. } | Self::Host { .. } => {
                format!("ralph resume {run}")
            }
            Self::Script { .. } => format!("add replies to the script, then ralph resume {run}"),
            Self::Baseline { .. } => format!(
                "ralph lint --baseline, fix the task file, then ralph run (or ralph edit-task {run} FILE, then ralph resume {run})"
            ),
        }
    }
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum RunVerdict {
    Succeeded,
    Failed { reason: RunStopReason },
    Stopped { reason: RunStopReason },
}
