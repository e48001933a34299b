//! What a prompt is told of the actions before it: how each ended, and the ends of what it printed, never the whole.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use ralph_core::event::Outcome;
use ralph_core::prompt::{self, Ends, LastAction};

use super::act::{Acted, acted};
use super::excerpts::whole_characters;
use crate::error::{Error, file};
use crate::store::Folder;

/// The actions of one iteration.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) iteration: u32,
    actions: Vec<One>,
}

#[derive(Debug)]
struct One {
    acted: Acted,
    ended: String,
    output: Option<Printed>,
}

/// The two ends of an output; the second is empty when the first is all of it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Printed {
    start: String,
    end: String,
    unread: u64,
}

/// Returns where the host keeps what an action printed.
pub(super) fn output_path(folder: &Folder, n: u32, index: u32) -> PathBuf {
    folder.iteration(n).join(output_name(index))
}

pub(super) fn output_name(index: u32) -> String {
    format!("action-{index}.txt")
}

impl Done {
    /// Reads the newest iteration before `n` that did something: one whose answer was no answer did not.
    pub(super) fn before(folder: &Folder, n: u32) -> Result<Option<Self>, Error> {
        for iteration in (1..n).rev() {
            let acted = acted(folder, iteration)?;
            if !acted.is_empty() {
                return Self::read(folder, iteration, acted).map(Some);
            }
        }
        Ok(None)
    }

    fn read(folder: &Folder, iteration: u32, acted: Vec<Acted>) -> Result<Self, Error> {
        let path = |acted: &Acted| output_path(folder, iteration, acted.index);
        // What printed nothing has no file.
        let size = |acted: &Acted| std::fs::metadata(path(acted)).map_or(0, |file| file.len());
        let sizes: Vec<u64> = acted.iter().map(size).collect();
        let mut actions = Vec::new();
        for ((acted, room), size) in acted.into_iter().zip(prompt::rooms(&sizes)).zip(&sizes) {
            let path = path(&acted);
            let output = match *size {
                _ if acted.kind != "run" || acted.outcome == Outcome::Refused => None,
                0 => Some(Printed::default()),
                size => Some(ends(&path, size, room).map_err(file("read", &path))?),
            };
            actions.push(One { ended: ended(&acted), acted, output });
        }
        Ok(Self { iteration, actions })
    }

    /// Returns them as a prompt takes them.
    pub(super) fn shown(&self) -> Vec<LastAction<'_>> {
        self.actions.iter().map(One::shown).collect()
    }
}

impl One {
    fn shown(&self) -> LastAction<'_> {
        LastAction {
            index: self.acted.index,
            brief: &self.acted.brief,
            ended: &self.ended,
            why: why(&self.acted),
            output: self.output.as_ref().map(Printed::shown),
        }
    }
}

impl Printed {
    fn shown(&self) -> Ends<'_> {
        Ends { start: &self.start, end: &self.end, unread: self.unread }
    }
}

fn ended(acted: &Acted) -> String {
    match (acted.outcome, acted.code) {
        (_, Some(code)) => format!("exit {code}"),
        (Outcome::Ok, None) => "done".to_owned(),
        (Outcome::Failed, None) => "failed".to_owned(),
        (Outcome::Refused, None) => "refused".to_owned(),
        (Outcome::Cut, None) => "cut short".to_owned(),
    }
}

/// Says why an action did not do what it should; what a command printed says so itself.
fn why(acted: &Acted) -> &str {
    if acted.outcome == Outcome::Ok || acted.detail.starts_with("exit ") { "" } else { &acted.detail }
}

/// Reads as much of both ends of a file as there is room for.
fn ends(path: &Path, size: u64, room: usize) -> io::Result<Printed> {
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
    Ok(Printed { start: whole_characters(&start), end: whole_characters(&end), unread })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn acted(index: u32, kind: &str, outcome: Outcome, code: Option<i32>, detail: &str) -> String {
        let acted = Acted {
            index,
            kind: kind.to_owned(),
            brief: format!("{kind} {index}"),
            outcome,
            code,
            timed_out: false,
            duration_ms: 1,
            detail: detail.to_owned(),
            complaint: String::new(),
        };
        serde_json::to_string(&acted).unwrap() + "\n"
    }

    #[test]
    fn the_newest_iteration_that_did_something() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::at(dir.path().to_owned());
        assert!(Done::before(&folder, 1).unwrap().is_none());
        let actions = [
            acted(0, "run", Outcome::Ok, Some(0), "exit 0: the last line"),
            acted(1, "run", Outcome::Ok, Some(0), "exit 0"),
            acted(2, "write", Outcome::Ok, None, "a.txt: 3 bytes"),
            acted(3, "run", Outcome::Failed, Some(124), "no end within 9 s"),
            acted(4, "patch", Outcome::Refused, None, "it is protected"),
        ];
        for n in [1, 3] {
            fs::create_dir_all(folder.iteration(n)).unwrap();
            fs::write(folder.iteration(n).join("actions.jsonl"), actions.concat()).unwrap();
        }
        // An answer that was no answer.
        fs::create_dir_all(folder.iteration(4)).unwrap();
        let long = format!("{}ä{}", "a".repeat(8191), "b".repeat(100_000));
        fs::write(output_path(&folder, 3, 0), "whole\n").unwrap();
        fs::write(output_path(&folder, 3, 3), &long).unwrap();
        let done = Done::before(&folder, 5).unwrap().unwrap();
        assert_eq!(done.iteration, 3);
        let (start, end) = ("a".repeat(8191), "b".repeat(8192));
        let cut = Ends { start: &start, end: &end, unread: (long.len() - 16 * 1024) as u64 };
        let row = |index, brief, ended, why, output| LastAction { index, brief, ended, why, output };
        let want = [
            row(0, "run 0", "exit 0", "", Some(Ends::whole("whole\n"))),
            row(1, "run 1", "exit 0", "", Some(Ends::default())),
            row(2, "write 2", "done", "", None),
            row(3, "run 3", "exit 124", "no end within 9 s", Some(cut)),
            row(4, "patch 4", "refused", "it is protected", None),
        ];
        assert_eq!(done.shown(), want);
    }
}
