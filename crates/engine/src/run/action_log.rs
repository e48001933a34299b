//! The log of an iteration's actions: `iterations/<n>/actions.jsonl`.

use std::collections::BTreeMap;

use ralph_core::action::ActionKind;
use ralph_core::event::ActionOutcome;
use ralph_core::redact::MaskedText;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::store::RunFolder;

/// The file's name in the folder of an iteration; one line per action.
pub(super) const ACTION_LOG_FILE: &str = "actions.jsonl";

/// A line of [`ACTION_LOG_FILE`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct ActionLogEntry {
    pub(super) index: u32,
    pub(super) kind: ActionKind,
    pub(super) brief: MaskedText,
    pub(super) outcome: ActionOutcome,
    pub(super) code: Option<i32>,
    /// The command was killed at its timeout, which its exit code does not show. Missing in older runs.
    #[serde(default)]
    pub(super) timed_out: bool,
    pub(super) duration_ms: u64,
    pub(super) detail: MaskedText,
    /// The error output of a failed command.
    #[serde(default)]
    pub(super) complaint: String,
}

/// Reads the log of an iteration: one entry per action, in order.
pub(super) fn read_action_log(folder: &RunFolder, n: u32) -> Result<Vec<ActionLogEntry>, Error> {
    let bytes = folder.read(&folder.iteration(n).join(ACTION_LOG_FILE))?.unwrap_or_default();
    let mut by_index = BTreeMap::new();
    for line in String::from_utf8_lossy(&bytes).lines() {
        // After a crash between this file and the event, the action is repeated and logged again: the last line counts.
        if let Ok(acted) = serde_json::from_str::<ActionLogEntry>(line) {
            by_index.insert(acted.index, acted);
        }
    }
    Ok(by_index.into_values().collect())
}
