//! Reads what a prompt shows of the previous actions: how each ended, and the ends of its output, never the whole.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use ralph_core::action::ActionKind;
use ralph_core::event::ActionOutcome;
use ralph_core::prompt::{self, LastAction, OutputEnds};

use super::action_log::{ActionLogEntry, read_action_log};
use super::prompt_excerpts::whole_characters;
use crate::error::{Error, file_error};
use crate::store::RunFolder;

/// The actions of one iteration.
#[derive(Debug)]
pub(super) struct PastActions {
    pub(super) iteration: u32,
    actions: Vec<PastAction>,
}

#[derive(Debug)]
struct PastAction {
    entry: ActionLogEntry,
    ending: String,
    output: Option<ActionOutputEnds>,
}

/// The two ends of an output; the second is empty when the first is all of it.
#[derive(Debug, Default, PartialEq, Eq)]
struct ActionOutputEnds {
    start: String,
    end: String,
    unread: u64,
}

/// Returns the path of an action's output on the host.
pub(super) fn output_path(folder: &RunFolder, n: u32, index: u32) -> PathBuf {
    folder.iteration(n).join(output_name(index))
}

pub(super) fn output_name(index: u32) -> String {
    format!("action-{index}.txt")
}

impl PastActions {
    /// Reads the newest iteration before `n` that carried out actions; one without a valid reply did not.
    pub(super) fn load_before(folder: &RunFolder, n: u32) -> Result<Option<Self>, Error> {
        for iteration in (1..n).rev() {
            let acted = read_action_log(folder, iteration)?;
            if !acted.is_empty() {
                return Self::read(folder, iteration, acted).map(Some);
            }
        }
        Ok(None)
    }

    fn read(folder: &RunFolder, iteration: u32, acted: Vec<ActionLogEntry>) -> Result<Self, Error> {
        let path = |acted: &ActionLogEntry| output_path(folder, iteration, acted.index);
        // An action without output has no file.
        let size = |acted: &ActionLogEntry| std::fs::metadata(path(acted)).map_or(0, |file| file.len());
        let sizes: Vec<u64> = acted.iter().map(size).collect();
        let mut actions = Vec::new();
        for ((acted, room), size) in acted.into_iter().zip(prompt::output_caps(&sizes)).zip(&sizes) {
            let path = path(&acted);
            let output = match *size {
                _ if acted.kind != ActionKind::Run || acted.outcome == ActionOutcome::Refused => None,
                0 => Some(ActionOutputEnds::default()),
                size => Some(read_ends(&path, size, room).map_err(file_error("read", &path))?),
            };
            actions.push(PastAction { ending: ending_text(&acted), entry: acted, output });
        }
        Ok(Self { iteration, actions })
    }

    /// Returns the actions in the form that a prompt takes.
    pub(super) fn as_prompt(&self) -> Vec<LastAction<'_>> {
        self.actions.iter().map(PastAction::as_prompt).collect()
    }
}

impl PastAction {
    fn as_prompt(&self) -> LastAction<'_> {
        LastAction {
            index: self.entry.index,
            brief: &self.entry.brief,
            ended: &self.ending,
            why: failure_reason(&self.entry),
            output: self.output.as_ref().map(ActionOutputEnds::as_prompt),
        }
    }
}

impl ActionOutputEnds {
    fn as_prompt(&self) -> OutputEnds<'_> {
        OutputEnds { start: &self.start, end: &self.end, unread: self.unread }
    }
}

fn ending_text(acted: &ActionLogEntry) -> String {
    match (acted.outcome, acted.code) {
        (_, Some(code)) => format!("exit {code}"),
        (ActionOutcome::Ok, None) => "done".to_owned(),
        (ActionOutcome::Failed, None) => "failed".to_owned(),
        (ActionOutcome::Refused, None) => "refused".to_owned(),
        (ActionOutcome::Cut, None) => "cut short".to_owned(),
    }
}

/// Says why an action failed; for a command its output says so.
fn failure_reason(acted: &ActionLogEntry) -> &str {
    if acted.outcome == ActionOutcome::Ok || acted.detail.starts_with("exit ") { "" } else { &acted.detail }
}

/// Reads as much of both ends of a file as there is room for.
fn read_ends(path: &Path, size: u64, room: usize) -> io::Result<ActionOutputEnds> {
    let mut file = File::open(path)?;
    let whole = usize::try_from(size).is_ok_and(|size| size <= room);
    let (first, last) = if whole { (room, 0) } else { (room / 2, room - room / 2) };
    let mut read = |from: SeekFrom, bytes: usize| -> io::Result<Vec<u8>> {
        let mut piece = Vec::new();
        file.seek(from)?;
        file.by_ref().take(bytes as u64).read_to_end(&mut piece)?;
        Ok(piece)
    };
    let start = read(SeekFrom::Start(0), first)?;
    let end = if last == 0 { Vec::new() } else { read(SeekFrom::Start(size.saturating_sub(last as u64)), last)? };
    let unread = size.saturating_sub((start.len() + end.len()) as u64);
    Ok(ActionOutputEnds { start: whole_characters(&start), end: whole_characters(&end), unread })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use ralph_core::redact::Redactor;

    use super::*;

    fn acted(index: u32, kind: &str, outcome: ActionOutcome, code: Option<i32>, detail: &str) -> String {
        let acted = ActionLogEntry {
            index,
            kind: kind.to_owned().into(),
            brief: Redactor::new([]).mask(&format!("{kind} {index}")),
            outcome,
            code,
            timed_out: false,
            duration_ms: 1,
            detail: Redactor::new([]).mask(detail),
            complaint: String::new(),
        };
        serde_json::to_string(&acted).unwrap() + "\n"
    }

    #[test]
    fn the_newest_iteration_that_did_something() {
        let dir = tempfile::tempdir().unwrap();
        let folder = RunFolder::at(dir.path().to_owned());
        assert!(PastActions::load_before(&folder, 1).unwrap().is_none());
        let actions = [
            acted(0, "run", ActionOutcome::Ok, Some(0), "exit 0: the last line"),
            acted(1, "run", ActionOutcome::Ok, Some(0), "exit 0"),
            acted(2, "write", ActionOutcome::Ok, None, "a.txt: 3 bytes"),
            acted(3, "run", ActionOutcome::Failed, Some(124), "no end within 9 s"),
            acted(4, "patch", ActionOutcome::Refused, None, "it is protected"),
        ];
        for n in [1, 3] {
            fs::create_dir_all(folder.iteration(n)).unwrap();
            fs::write(folder.iteration(n).join("actions.jsonl"), actions.concat()).unwrap();
        }
        // An iteration without a valid reply.
        fs::create_dir_all(folder.iteration(4)).unwrap();
        let long = format!("{}ä{}", "a".repeat(8191), "b".repeat(100_000));
        fs::write(output_path(&folder, 3, 0), "whole\n").unwrap();
        fs::write(output_path(&folder, 3, 3), &long).unwrap();
        let done = PastActions::load_before(&folder, 5).unwrap().unwrap();
        assert_eq!(done.iteration, 3);
        let (start, end) = ("a".repeat(8191), "b".repeat(8192));
        let cut = OutputEnds { start: &start, end: &end, unread: (long.len() - 16 * 1024) as u64 };
        let row = |index, brief, ended, why, output| LastAction { index, brief, ended, why, output };
        let want = [
            row(0, "run 0", "exit 0", "", Some(OutputEnds::whole("whole\n"))),
            row(1, "run 1", "exit 0", "", Some(OutputEnds::default())),
            row(2, "write 2", "done", "", None),
            row(3, "run 3", "exit 124", "no end within 9 s", Some(cut)),
            row(4, "patch 4", "refused", "it is protected", None),
        ];
        assert_eq!(done.as_prompt(), want);
    }
}
