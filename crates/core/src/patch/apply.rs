//! Locates the hunks of a patch in a file and builds the new text.
//!
//! A hunk's old lines must occur in the file exactly, consecutively, and after the hunk before. If they occur at
//! several such places, the line number in the header must name one of them; otherwise the patch is refused.

use std::collections::HashMap;
use std::ops::ControlFlow;

use super::PatchError;
use super::parse::{self, PatchHunk, PatchLineKind, without_carriage_return};
use crate::text;

/// Applies a unified diff of one file to its text.
pub fn apply(original: &str, patch: &str) -> Result<String, PatchError> {
    let patch = parse::parse(patch)?;
    if patch.creates && !original.is_empty() {
        return Err(PatchError::Exists);
    }
    let file = FileLines::new(original);
    let patched = match detect_line_endings(&file, &patch.hunks) {
        LineEndings::AsWritten => apply_hunks(&file, &patch.hunks, CarriageReturns::Significant),
        LineEndings::FromFile => apply_hunks(&file, &patch.hunks, CarriageReturns::FollowFile),
        LineEndings::Mixed => match apply_hunks(&file, &patch.hunks, CarriageReturns::Significant) {
            Err(PatchError::NoSuchLine { .. } | PatchError::NoSuchPlace { .. }) => {
                apply_hunks(&file, &patch.hunks, CarriageReturns::FollowFile)
            }
            done => done,
        },
    }?;
    if patched == original { Err(PatchError::NoChange) } else { Ok(patched) }
}

/// A text as lines without their `\n`.
struct FileLines<'a> {
    lines: Vec<&'a str>,
    /// The last line ends with a newline.
    final_newline: bool,
}

impl<'a> FileLines<'a> {
    fn new(text: &'a str) -> Self {
        if text.is_empty() {
            return Self { lines: Vec::new(), final_newline: true };
        }
        let body = text.strip_suffix('\n');
        Self { lines: body.unwrap_or(text).split('\n').collect(), final_newline: body.is_some() }
    }

    /// Returns the lines that end with a newline: only these show the file's line ending.
    fn terminated_lines(&self) -> &[&'a str] {
        let all = self.lines.as_slice();
        if self.final_newline { all } else { all.split_last().map_or(all, |(_, before)| before) }
    }

    /// Returns the carriage return that a line inserted at `at` needs to match its neighbour.
    fn carriage_return(&self, at: usize) -> &'static str {
        let lines = self.terminated_lines();
        let neighbour = lines.get(at.min(lines.len()).saturating_sub(1));
        if neighbour.is_some_and(|line| line.ends_with('\r')) { "\r" } else { "" }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum CarriageReturns {
    Significant,
    /// Ignored in comparisons; new lines get the ending of their neighbours in the file.
    FollowFile,
}

impl CarriageReturns {
    fn comparable(self, line: &str) -> &str {
        match self {
            Self::Significant => line,
            Self::FollowFile => without_carriage_return(line),
        }
    }
}

enum LineEndings {
    AsWritten,
    FromFile,
    /// The file has both endings and the patch none: try it as written first.
    Mixed,
}

/// Decides how carriage returns at line ends are treated: models write `\n`, whatever the file uses.
fn detect_line_endings(file: &FileLines<'_>, hunks: &[PatchHunk<'_>]) -> LineEndings {
    let has = |line: &&str| line.ends_with('\r');
    let mut patch_lines = hunks.iter().flat_map(|hunk| &hunk.lines).map(|line| line.text);
    let in_file = file.lines.iter().any(has);
    if in_file && !patch_lines.clone().any(|line| has(&line)) {
        return if file.terminated_lines().iter().all(has) { LineEndings::FromFile } else { LineEndings::Mixed };
    }
    if !in_file && !file.lines.is_empty() && patch_lines.all(|line| has(&line)) {
        return LineEndings::FromFile;
    }
    LineEndings::AsWritten
}

fn apply_hunks(file: &FileLines<'_>, hunks: &[PatchHunk<'_>], returns: CarriageReturns) -> Result<String, PatchError> {
    let places = locate_hunks(file, hunks, returns)?;
    let mut out = PatchedText { text: String::new(), file, returns, added_return: false };
    let mut at = 0;
    for (hunk, place) in hunks.iter().zip(places) {
        (at..place).for_each(|at| out.copy_line(at));
        at = place;
        for line in &hunk.lines {
            match line.kind {
                PatchLineKind::Context => out.copy_line(at),
                PatchLineKind::Removed => (),
                PatchLineKind::Added => out.add_line(line.text, at),
            }
            at += usize::from(line.kind != PatchLineKind::Added);
        }
    }
    (at..file.lines.len()).for_each(|at| out.copy_line(at));
    let ended = ends_with_newline(file, hunks, at);
    Ok(out.finish(ended))
}

/// Returns whether the new text ends with a newline: as the patch says, or else as the file did.
fn ends_with_newline(file: &FileLines<'_>, hunks: &[PatchHunk<'_>], last_place: usize) -> bool {
    let Some(hunk) = hunks.last().filter(|_| last_place == file.lines.len()) else { return file.final_newline };
    if hunk.new_without_newline || hunk.old_without_newline {
        return !hunk.new_without_newline;
    }
    // When the last line was removed, the one before it becomes the last, and that one had a newline.
    let removed_last = hunk.lines.iter().rposition(|line| line.kind == PatchLineKind::Removed);
    let kept_last = hunk.lines.iter().rposition(|line| line.kind != PatchLineKind::Removed);
    let last_is_old =
        kept_last.is_none_or(|kept| hunk.lines.get(kept).is_some_and(|line| line.kind == PatchLineKind::Context));
    file.final_newline || (last_is_old && removed_last > kept_last)
}

/// The new text being built; every line is written with a newline, and the last newline is removed at the end if
/// needed.
struct PatchedText<'a> {
    text: String,
    file: &'a FileLines<'a>,
    returns: CarriageReturns,
    /// The last line was given a carriage return that is in neither the file nor the patch.
    added_return: bool,
}

impl PatchedText<'_> {
    fn copy_line(&mut self, at: usize) {
        let line = self.file.lines.get(at).copied().unwrap_or("");
        self.text.push_str(line);
        let unended = !self.file.final_newline && at + 1 == self.file.lines.len();
        let like =
            if unended && self.returns == CarriageReturns::FollowFile { self.file.carriage_return(at) } else { "" };
        self.text.push_str(like);
        self.added_return = !like.is_empty();
        self.text.push('\n');
    }

    fn add_line(&mut self, line: &str, at: usize) {
        match self.returns {
            CarriageReturns::Significant => {
                self.text.push_str(line);
                self.added_return = false;
            }
            CarriageReturns::FollowFile => {
                let like = self.file.carriage_return(at);
                self.text.push_str(without_carriage_return(line));
                self.text.push_str(like);
                self.added_return = !like.is_empty();
            }
        }
        self.text.push('\n');
    }

    fn finish(mut self, ended: bool) -> String {
        // An empty line without a newline would not be a line at all, but the patch asks for one.
        let empty = self.text == "\n" || self.text.ends_with("\n\n");
        if !ended && !empty && self.text.pop().is_some() && self.added_return {
            self.text.pop();
        }
        self.text
    }
}

/// Finds the line index in the file where each hunk goes.
fn locate_hunks(
    file: &FileLines<'_>,
    hunks: &[PatchHunk<'_>],
    returns: CarriageReturns,
) -> Result<Vec<usize>, PatchError> {
    let mut numbers = LineInterner::default();
    let lines: Vec<u32> = file.lines.iter().map(|line| numbers.intern(returns.comparable(line))).collect();
    let mut needles = Vec::with_capacity(hunks.len());
    for (hunk, n) in hunks.iter().zip(1..) {
        needles.push(HunkMatcher::new(hunk, n, &lines, &|line| numbers.number_of(returns.comparable(line)))?);
    }

    // The latest position of each hunk that leaves room for those after it: later ones cannot be meant.
    let mut floor = 0;
    for (needle, n) in needles.iter().zip(1..) {
        let first = needle.first(floor).ok_or(PatchError::NoSuchPlace { hunk: n })?;
        floor = first + needle.old.len();
    }
    let mut latest = Vec::with_capacity(needles.len());
    let mut limit = lines.len();
    for needle in needles.iter().rev() {
        limit = needle.last(limit).unwrap_or(0);
        latest.push(limit);
    }

    let mut floor = 0;
    let mut drift = 0_isize;
    let mut places = Vec::with_capacity(hunks.len());
    for (((needle, hunk), n), latest) in needles.iter().zip(hunks).zip(1..).zip(latest.into_iter().rev()) {
        // A header counts from 1, and the lines before may all be off by the same number.
        let named = hunk.start.and_then(|start| start.checked_sub(1));
        let drifted = named.and_then(|named| named.checked_add_signed(drift));
        let place = needle.choose(floor, latest, [named, drifted]).map_err(|lines| match lines.first() {
            Some(_) => PatchError::Ambiguous { hunk: n, lines },
            None => PatchError::NoSuchPlace { hunk: n },
        })?;
        if let Some(named) = named {
            drift = place.cast_signed().saturating_sub(named.cast_signed());
        }
        floor = place + needle.old.len();
        places.push(place);
    }
    Ok(places)
}

/// Assigns equal lines equal numbers, so that comparing lines is comparing numbers.
#[derive(Default)]
struct LineInterner<'a>(HashMap<&'a str, u32>);

impl<'a> LineInterner<'a> {
    fn intern(&mut self, line: &'a str) -> u32 {
        let next = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        *self.0.entry(line).or_insert(next)
    }

    fn number_of(&self, line: &str) -> Option<u32> {
        self.0.get(line).copied()
    }
}

/// The old lines of a hunk, searched in linear time (Knuth, Morris, Pratt).
struct HunkMatcher<'a> {
    old: Vec<u32>,
    /// For each prefix of `old`, the length of its longest proper prefix that is also its suffix.
    fallback: Vec<usize>,
    lines: &'a [u32],
    at_end: bool,
}

impl<'a> HunkMatcher<'a> {
    fn new(
        hunk: &PatchHunk<'_>,
        n: usize,
        lines: &'a [u32],
        known: &dyn Fn(&str) -> Option<u32>,
    ) -> Result<Self, PatchError> {
        let mut old = Vec::new();
        for line in hunk.lines.iter().filter(|line| line.kind != PatchLineKind::Added) {
            let number = known(line.text).ok_or_else(|| PatchError::NoSuchLine {
                hunk: n,
                line: text::strip_control(text::first_line(line.text, 120)),
            })?;
            old.push(number);
        }
        if old.is_empty() && !lines.is_empty() {
            return Err(PatchError::NoContext { hunk: n });
        }
        let mut fallback = Vec::with_capacity(old.len());
        let mut len = 0;
        for (at, line) in old.iter().enumerate() {
            while len > 0 && (at == 0 || old[len] != *line) {
                len = fallback[len - 1];
            }
            len += usize::from(at > 0 && old[len] == *line);
            fallback.push(len);
        }
        Ok(Self { old, fallback, lines, at_end: hunk.old_without_newline || hunk.new_without_newline })
    }

    /// Calls `found` with every position from `floor` where the old lines occur and end by `limit`, in order.
    fn each_match(&self, floor: usize, limit: usize, found: &mut dyn FnMut(usize) -> ControlFlow<()>) {
        if self.old.is_empty() {
            let _only_place = found(floor);
            return;
        }
        let mut len = 0;
        for (at, line) in self.lines.iter().enumerate().take(limit).skip(floor) {
            while len > 0 && (len == self.old.len() || self.old[len] != *line) {
                len = self.fallback[len - 1];
            }
            len += usize::from(self.old[len] == *line);
            let end = at + 1;
            if len == self.old.len() && (!self.at_end || end == self.lines.len()) && found(end - len).is_break() {
                return;
            }
        }
    }

    fn first(&self, floor: usize) -> Option<usize> {
        let mut first = None;
        self.each_match(floor, self.lines.len(), &mut |place| {
            first = Some(place);
            ControlFlow::Break(())
        });
        first
    }

    fn last(&self, limit: usize) -> Option<usize> {
        let mut last = None;
        self.each_match(0, limit, &mut |place| {
            last = Some(place);
            ControlFlow::Continue(())
        });
        last
    }

    /// Returns the only position from `floor` to `latest`, or the only named one; otherwise some of the positions as
    /// lines.
    fn choose(&self, floor: usize, latest: usize, named: [Option<usize>; 2]) -> Result<usize, Vec<usize>> {
        const SHOWN: usize = 5;
        let mut seen = Vec::new();
        let mut hits = Vec::new();
        self.each_match(floor, latest + self.old.len(), &mut |place| {
            if seen.len() < SHOWN {
                seen.push(place);
            }
            if named.contains(&Some(place)) {
                hits.push(place);
            }
            ControlFlow::Continue(())
        });
        match (seen.as_slice(), hits.as_slice()) {
            ([only], _) | (_, [only]) => Ok(*only),
            _ => Err(seen.iter().map(|place| place + 1).collect()),
        }
    }
}

#[cfg(test)]
mod tests;
