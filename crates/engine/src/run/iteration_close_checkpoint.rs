//! Saves what closing an iteration has found out so far on the host. If the process dies, the next one continues from
//! there, instead of examining a tree that its predecessor has already restored.
//!
//! What is decided from it is in `close_iteration`.

use std::collections::BTreeMap;
use std::fs;

use ralph_core::redact::Redactor;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::action_log::ACTION_LOG_FILE;
use super::session_record::SESSION_FILE;
use crate::check_execution::CommandResult;
use crate::error::{Error, file_error};
use crate::git::in_sandbox::CloneStatus;
use crate::store::{RunFolder, write_atomic};

/// `iterations/<n>/closing.json`.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct CloseCheckpoint {
    /// Messages about ralph's own files that were cut or changed. Saved before the files are restored.
    pub(super) restored: Vec<String>,
    /// Protected paths that were changed, with secrets masked. Saved before the paths are restored.
    pub(super) protected: Vec<String>,
    /// The restored tree that the checks run on; set once everything is restored.
    pub(super) judged: Option<CheckedTree>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct CheckedTree {
    pub(super) look: CloneStatus,
    /// The length of each log before this iteration was appended to it.
    pub(super) logs: BTreeMap<String, u64>,
}

impl CheckedTree {
    /// Masks secrets in the status: the model chose the file names, and they may contain one.
    pub(super) fn new(look: CloneStatus, logs: BTreeMap<String, u64>, redactor: &Redactor) -> Self {
        let mask = |text: &str| redactor.redact(text).into_owned();
        let look = CloneStatus {
            branch: mask(&look.branch),
            files: look.files.iter().map(|(path, hash)| (mask(path), hash.clone())).collect(),
            status: mask(&look.status),
            diffstat: mask(&look.diffstat),
            since_start: look.since_start.iter().map(|(path, letter)| (mask(path), *letter)).collect(),
            ..look
        };
        Self { look, logs }
    }
}

impl CloseCheckpoint {
    pub(super) fn load(folder: &RunFolder, n: u32) -> Result<Self, Error> {
        Ok(read(folder, n, CHECKPOINT_FILE)?.unwrap_or_default())
    }

    pub(super) fn save(&self, folder: &RunFolder, n: u32) -> Result<(), Error> {
        write(folder, n, CHECKPOINT_FILE, self)
    }

    /// Removes what an earlier attempt at an iteration left; an iteration starts over when its sandbox was recreated.
    pub(super) fn remove_attempt(folder: &RunFolder, n: u32) -> Result<(), Error> {
        remove_files(folder, n, |name| {
            let of_a_step = ["call-", "action-"].iter().any(|start| name.starts_with(start));
            is_check_file(name)
                || of_a_step
                || [CHECKPOINT_FILE, ACTION_LOG_FILE, SESSION_FILE, TEST_OUTPUT_FILE, WORK_REVISION_FILE]
                    .contains(&name)
        })
    }

    /// Makes the iteration be checked again, because users may have worked in the sandbox while the run was paused.
    pub(super) fn invalidate(folder: &RunFolder, n: u32) -> Result<(), Error> {
        let mut closing = Self::load(folder, n)?;
        if closing.judged.take().is_some() {
            closing.save(folder, n)?;
        }
        remove_files(folder, n, is_check_file)
    }

    pub(super) fn push_once(list: &mut Vec<String>, text: String) {
        if !list.contains(&text) {
            list.push(text);
        }
    }
}

/// A check that finished, `iterations/<n>/check-<index>.json`. Saved before its event.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct SavedCheck {
    pub(super) command: String,
    pub(super) ran: CommandResult,
}

/// A state of the clone that can be restored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct CloneRevision {
    pub(super) head: String,
    pub(super) index: String,
    pub(super) tree: String,
}

/// The file with the state of the clone to go back to, while checks run without some of the run's changes.
const WORK_REVISION_FILE: &str = "work-revision.json";

impl CloneRevision {
    /// Records that checks are about to change the clone, so that the run's own work can be restored whatever happens.
    pub(super) fn save_work(&self, folder: &RunFolder, n: u32) -> Result<(), Error> {
        write(folder, n, WORK_REVISION_FILE, self)
    }

    /// Returns the state to go back to, if checks were cut short.
    pub(super) fn load_work(folder: &RunFolder, n: u32) -> Result<Option<Self>, Error> {
        read(folder, n, WORK_REVISION_FILE)
    }

    pub(super) fn forget_work(folder: &RunFolder, n: u32) -> Result<(), Error> {
        remove_files(folder, n, |name| name == WORK_REVISION_FILE)
    }

    pub(super) fn of(look: &CloneStatus) -> Self {
        Self { head: look.head.clone(), index: look.index.clone(), tree: look.tree.clone() }
    }
}

impl SavedCheck {
    /// Returns the saved check with this index, if it ran this command.
    pub(super) fn load(folder: &RunFolder, n: u32, index: usize, command: &str) -> Result<Option<Self>, Error> {
        let kept: Option<Self> = read(folder, n, &check_file_name(index))?;
        Ok(kept.filter(|kept| kept.command == command))
    }

    pub(super) fn save(&self, folder: &RunFolder, n: u32, index: usize) -> Result<(), Error> {
        write(folder, n, &check_file_name(index), self)
    }
}

const CHECKPOINT_FILE: &str = "closing.json";
/// The output of the test command.
pub(super) const TEST_OUTPUT_FILE: &str = "test_output.txt";

fn check_file_name(index: usize) -> String {
    format!("check-{index}.json")
}

fn is_check_file(name: &str) -> bool {
    name.strip_prefix("check-").and_then(|rest| rest.strip_suffix(".json")).is_some()
}

fn remove_files(folder: &RunFolder, n: u32, meant: impl Fn(&str) -> bool) -> Result<(), Error> {
    for entry in fs::read_dir(folder.iteration(n)).into_iter().flatten().flatten() {
        if meant(&entry.file_name().to_string_lossy()) {
            fs::remove_file(entry.path()).map_err(file_error("remove", &entry.path()))?;
        }
    }
    Ok(())
}

/// Reads a file; one that does not parse was never finished and counts as missing.
fn read<T: DeserializeOwned>(folder: &RunFolder, n: u32, name: &str) -> Result<Option<T>, Error> {
    let bytes = folder.read(&folder.iteration(n).join(name))?;
    Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
}

fn write(folder: &RunFolder, n: u32, name: &str, what: &impl Serialize) -> Result<(), Error> {
    let bytes = serde_json::to_vec(what).expect("plain data with string keys");
    write_atomic(&folder.iteration(n).join(name), &bytes)
}

#[cfg(test)]
mod tests {
    use ralph_core::secret::Secret;

    use super::*;

    #[test]
    fn what_is_kept_holds_no_secret() {
        let redactor = Redactor::new([("KEY".to_owned(), Secret::new("planted-value"))]);
        let look = |name: &str| CloneStatus {
            head: "h".to_owned(),
            index: "i".to_owned(),
            branch: format!("refs/heads/{name}"),
            tree: "t".to_owned(),
            from: "f".to_owned(),
            changed_lines: 3,
            files: BTreeMap::from([(format!("a/{name}.txt"), "1".to_owned()), ("b".to_owned(), "2".to_owned())]),
            status: format!("A a/{name}.txt\n"),
            diffstat: format!("3\t0\ta/{name}.txt\n"),
            since_start: BTreeMap::from([(format!("a/{name}.txt"), 'A')]),
        };
        for (name, want) in [("planted-value", "[redacted:KEY]"), ("ordinary", "ordinary")] {
            assert_eq!(CheckedTree::new(look(name), BTreeMap::new(), &redactor).look, look(want));
        }
    }
}
