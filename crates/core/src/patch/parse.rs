//! Parses a unified diff as models write it: fences, git headers and wrong counts are expected.
//!
//! Only the shape is checked here; `apply` checks whether a hunk fits the file.

use super::PatchError;
use crate::text;

/// More hunks than a person would read; keeps locating the hunks of a hostile patch cheap.
const MAX_HUNKS: usize = 200;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PatchLineKind {
    Context,
    Removed,
    Added,
}

/// One line of a hunk, without its marker; a carriage return is still there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PatchLine<'a> {
    pub(super) kind: PatchLineKind,
    pub(super) text: &'a str,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct PatchHunk<'a> {
    /// The 1-based line where the old side starts, if the header has it.
    pub(super) start: Option<usize>,
    pub(super) lines: Vec<PatchLine<'a>>,
    /// The last old line is marked as having no newline: it is the last of the file.
    pub(super) old_without_newline: bool,
    /// The same for the last new line.
    pub(super) new_without_newline: bool,
}

impl PatchHunk<'_> {
    fn count_except(&self, but: PatchLineKind) -> usize {
        self.lines.iter().filter(|line| line.kind != but).count()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct FilePatch<'a> {
    pub(super) hunks: Vec<PatchHunk<'a>>,
    /// The header says that the file did not exist before.
    pub(super) creates: bool,
}

/// Parses a patch of one file.
pub(super) fn parse(patch: &str) -> Result<FilePatch<'_>, PatchError> {
    let lines = lines(patch);
    let mut at = lines.iter().position(|line| line.starts_with("@@")).ok_or(PatchError::NoHunk)?;
    let mut read = FilePatch { hunks: Vec::new(), creates: preamble(&lines[..at])? };
    while lines.get(at).is_some_and(|line| line.starts_with("@@")) {
        if read.hunks.len() == MAX_HUNKS {
            return Err(PatchError::TooManyHunks { max: MAX_HUNKS });
        }
        let (hunk, next) = hunk(&lines, at)?;
        if hunk.lines.iter().all(|line| line.kind == PatchLineKind::Context) {
            return Err(PatchError::EmptyHunk { hunk: read.hunks.len() + 1 });
        }
        read.hunks.push(hunk);
        at = next;
    }
    // Text after a closing fence could be a second patch: better refused than half applied.
    match (at..lines.len()).find(|at| !is_blank(lines[*at]) && !is_closing_fence(lines[*at])) {
        Some(at) => Err(malformed(&lines, at)),
        None => Ok(read),
    }
}

/// Counts the added and removed lines of a diff of any number of files.
pub fn stat(diff: &str) -> (usize, usize) {
    let lines = lines(diff);
    let (mut added, mut removed) = (0, 0);
    let mut counts: Option<HunkCounts> = None;
    for (at, line) in lines.iter().enumerate() {
        if line.starts_with("@@") {
            counts = Some(parse_hunk_header(line).1);
        } else if is_file_header(&lines, at, counts.as_ref()) {
            counts = None;
        } else if let Some(counts) = &mut counts {
            match line.bytes().next() {
                Some(b'+') => {
                    added += 1;
                    counts.count_line(PatchLineKind::Added);
                }
                Some(b'-') => {
                    removed += 1;
                    counts.count_line(PatchLineKind::Removed);
                }
                Some(b'\\') => (),
                _ => counts.count_line(PatchLineKind::Context),
            }
        }
    }
    (added, removed)
}

fn lines(patch: &str) -> Vec<&str> {
    let lines: Vec<&str> = patch.strip_suffix('\n').unwrap_or(patch).split('\n').collect();
    // When even the headers end in a carriage return, the whole patch was converted, which says nothing about the
    // file.
    let headers = || lines.iter().filter(|line| line.starts_with("@@"));
    if headers().next().is_some() && headers().all(|line| line.ends_with('\r')) {
        return lines.iter().map(|line| without_carriage_return(line)).collect();
    }
    lines
}

pub(super) fn without_carriage_return(line: &str) -> &str {
    line.strip_suffix('\r').unwrap_or(line)
}

/// Parses the lines before the first hunk and returns whether the file is new. Anything that could be a change of a
/// file is an error, because it would be lost.
fn preamble(lines: &[&str]) -> Result<bool, PatchError> {
    const HEADERS: [&str; 11] = [
        "diff ",
        "index ",
        "--- ",
        "+++ ",
        "new file mode ",
        "old mode ",
        "new mode ",
        "similarity index ",
        "*** Begin Patch",
        "*** Update File: ",
        "*** Add File: ",
    ];
    let fence = lines.iter().rposition(|line| line.starts_with("```"));
    let mut creates = false;
    let mut named = [false; 3];
    for (at, line) in lines.iter().enumerate().skip(fence.map_or(0, |fence| fence + 1)) {
        let line = without_carriage_return(line);
        if line.starts_with("deleted file mode ") || line.starts_with("+++ /dev/null") {
            return Err(PatchError::DeletesFile);
        }
        if !line.trim().is_empty() && !HEADERS.iter().any(|header| line.starts_with(header)) {
            return Err(malformed(lines, at));
        }
        creates |= line.starts_with("--- /dev/null") || line.starts_with("new file mode ");
        for (seen, header) in named.iter_mut().zip(["diff ", "--- ", "*** Update File: "]) {
            if line.starts_with(header) && std::mem::replace(seen, true) {
                return Err(PatchError::SecondFile { line: at + 1 });
            }
        }
    }
    Ok(creates)
}

/// Parses the hunk whose header is at `at`, and returns where the next begins.
fn hunk<'a>(lines: &[&'a str], at: usize) -> Result<(PatchHunk<'a>, usize), PatchError> {
    let (start, mut counts) = parse_hunk_header(lines[at]);
    let old_count = counts.old;
    let mut hunk = PatchHunk { start, ..PatchHunk::default() };
    // Empty lines at the end: context whose space was trimmed, or the gap before the following text.
    let mut gap = 0;
    let mut at = at + 1;
    while let Some(line) = lines.get(at) {
        if line.starts_with("@@") || is_closing_fence(line) {
            break;
        }
        if is_file_header(lines, at, Some(&counts)) {
            return Err(PatchError::SecondFile { line: at + 1 });
        }
        let (kind, text) = match line.bytes().next() {
            Some(b' ') => (PatchLineKind::Context, &line[1..]),
            Some(b'-') => (PatchLineKind::Removed, &line[1..]),
            Some(b'+') => (PatchLineKind::Added, &line[1..]),
            Some(b'\\') => {
                match hunk.lines.last().map(|line| line.kind) {
                    Some(PatchLineKind::Context) => (hunk.old_without_newline, hunk.new_without_newline) = (true, true),
                    Some(PatchLineKind::Removed) => hunk.old_without_newline = true,
                    Some(PatchLineKind::Added) => hunk.new_without_newline = true,
                    None => return Err(malformed(lines, at)),
                }
                gap = 0;
                at += 1;
                continue;
            }
            _ if is_blank(line) => (PatchLineKind::Context, *line),
            _ => return Err(malformed(lines, at)),
        };
        if is_blank(line) {
            gap += 1;
        } else if hunk.old_without_newline && kind != PatchLineKind::Added
            || hunk.new_without_newline && kind != PatchLineKind::Removed
        {
            return Err(malformed(lines, at));
        } else {
            gap = 0;
        }
        counts.count_line(kind);
        hunk.lines.push(PatchLine { kind, text });
        at += 1;
    }
    let seen = hunk.count_except(PatchLineKind::Added);
    let kept = old_count.and_then(|count| count.checked_sub(seen - gap)).filter(|kept| *kept <= gap).unwrap_or(0);
    hunk.lines.truncate(hunk.lines.len() - gap + kept);
    Ok((hunk, at))
}

/// The number of lines a hunk still has, if its header is correct.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct HunkCounts {
    old: Option<usize>,
    new: Option<usize>,
}

impl HunkCounts {
    fn count_line(&mut self, kind: PatchLineKind) {
        if kind != PatchLineKind::Added {
            self.old = self.old.map(|left| left.saturating_sub(1));
        }
        if kind != PatchLineKind::Removed {
            self.new = self.new.map(|left| left.saturating_sub(1));
        }
    }

    fn expects_more(&self) -> bool {
        self.old.is_some_and(|left| left > 0) && self.new.is_some_and(|left| left > 0)
    }
}

/// Parses `@@ -start,old +start,new @@`; a missing or non-numeric part is unknown.
fn parse_hunk_header(line: &str) -> (Option<usize>, HunkCounts) {
    let mut words = line.trim_start_matches('@').split_whitespace();
    let mut range = |mark: char| {
        let range = words.next()?.strip_prefix(mark)?;
        let (start, count) = range.split_once(',').unwrap_or((range, "1"));
        Some((start.parse().ok()?, count.parse().ok()?))
    };
    let old: Option<(usize, usize)> = range('-');
    let new: Option<(usize, usize)> = range('+');
    (old.map(|old| old.0), HunkCounts { old: old.map(|old| old.1), new: new.map(|new| new.1) })
}

/// Returns whether another file begins here. `--- a` and `+++ b` may also remove `-- a` and add `++ b`: the counts
/// decide.
fn is_file_header(lines: &[&str], at: usize, counts: Option<&HunkCounts>) -> bool {
    let begins = |offset: usize, mark: &str| lines.get(at + offset).is_some_and(|line| line.starts_with(mark));
    begins(0, "diff --git ")
        || begins(0, "*** Update File: ")
        || begins(0, "--- ") && begins(1, "+++ ") && begins(2, "@@") && !counts.is_some_and(HunkCounts::expects_more)
}

fn is_blank(line: &str) -> bool {
    without_carriage_return(line).is_empty()
}

fn is_closing_fence(line: &str) -> bool {
    line.starts_with("```") || line.starts_with("*** End ")
}

fn malformed(lines: &[&str], at: usize) -> PatchError {
    let line = lines.get(at).copied().unwrap_or("");
    PatchError::Malformed { line: at + 1, text: text::strip_control(text::first_line(line, 80)) }
}
