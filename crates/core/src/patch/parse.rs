//! Reads a unified diff as models write it: fences, git headers and wrong counts are expected.
//!
//! Only the shape is judged here; whether a hunk fits the file is `apply`'s matter.

use super::Error;
use crate::text;

/// More hunks than a person would read; keeps the placing of hostile patches cheap.
const MAX_HUNKS: usize = 200;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Context,
    Removed,
    Added,
}

/// One line of a hunk, without its mark; a carriage return is still there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Line<'a> {
    pub(super) kind: Kind,
    pub(super) text: &'a str,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Hunk<'a> {
    /// The 1-based line where the old side starts, if the header said so.
    pub(super) start: Option<usize>,
    pub(super) lines: Vec<Line<'a>>,
    /// The last old line is said to have no newline: it is the last of the file.
    pub(super) old_unended: bool,
    /// The same for the last new line.
    pub(super) new_unended: bool,
}

impl Hunk<'_> {
    fn count(&self, but: Kind) -> usize {
        self.lines.iter().filter(|line| line.kind != but).count()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Patch<'a> {
    pub(super) hunks: Vec<Hunk<'a>>,
    /// The header says that there was no file before.
    pub(super) creates: bool,
}

/// Reads a patch of one file.
pub(super) fn parse(patch: &str) -> Result<Patch<'_>, Error> {
    let lines = lines(patch);
    let mut at = lines.iter().position(|line| line.starts_with("@@")).ok_or(Error::NoHunk)?;
    let mut read = Patch { hunks: Vec::new(), creates: preamble(&lines[..at])? };
    while lines.get(at).is_some_and(|line| line.starts_with("@@")) {
        if read.hunks.len() == MAX_HUNKS {
            return Err(Error::TooManyHunks { max: MAX_HUNKS });
        }
        let (hunk, next) = hunk(&lines, at)?;
        if hunk.lines.iter().all(|line| line.kind == Kind::Context) {
            return Err(Error::EmptyHunk { hunk: read.hunks.len() + 1 });
        }
        read.hunks.push(hunk);
        at = next;
    }
    // What follows a closing fence could be a second patch: better refused than half applied.
    match (at..lines.len()).find(|at| !is_blank(lines[*at]) && !is_closing(lines[*at])) {
        Some(at) => Err(malformed(&lines, at)),
        None => Ok(read),
    }
}

/// Counts the added and removed lines of a diff of any number of files.
pub fn stat(diff: &str) -> (usize, usize) {
    let lines = lines(diff);
    let (mut added, mut removed) = (0, 0);
    let mut counts: Option<Counts> = None;
    for (at, line) in lines.iter().enumerate() {
        if line.starts_with("@@") {
            counts = Some(header(line).1);
        } else if is_file_header(&lines, at, counts.as_ref()) {
            counts = None;
        } else if let Some(counts) = &mut counts {
            match line.bytes().next() {
                Some(b'+') => {
                    added += 1;
                    counts.see(Kind::Added);
                }
                Some(b'-') => {
                    removed += 1;
                    counts.see(Kind::Removed);
                }
                Some(b'\\') => (),
                _ => counts.see(Kind::Context),
            }
        }
    }
    (added, removed)
}

fn lines(patch: &str) -> Vec<&str> {
    let lines: Vec<&str> = patch.strip_suffix('\n').unwrap_or(patch).split('\n').collect();
    // When even the headers end in a carriage return, the whole patch came that way and it says nothing of the file.
    let headers = || lines.iter().filter(|line| line.starts_with("@@"));
    if headers().next().is_some() && headers().all(|line| line.ends_with('\r')) {
        return lines.iter().map(|line| bare(line)).collect();
    }
    lines
}

pub(super) fn bare(line: &str) -> &str {
    line.strip_suffix('\r').unwrap_or(line)
}

/// Reads what stands before the first hunk and says whether the file is new. Anything that could be a change of a file
/// is an error, because it would be lost.
fn preamble(lines: &[&str]) -> Result<bool, Error> {
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
        let line = bare(line);
        if line.starts_with("deleted file mode ") || line.starts_with("+++ /dev/null") {
            return Err(Error::DeletesFile);
        }
        if !line.trim().is_empty() && !HEADERS.iter().any(|header| line.starts_with(header)) {
            return Err(malformed(lines, at));
        }
        creates |= line.starts_with("--- /dev/null") || line.starts_with("new file mode ");
        for (seen, header) in named.iter_mut().zip(["diff ", "--- ", "*** Update File: "]) {
            if line.starts_with(header) && std::mem::replace(seen, true) {
                return Err(Error::SecondFile { line: at + 1 });
            }
        }
    }
    Ok(creates)
}

/// Reads the hunk whose header is at `at`, and returns where the next begins.
fn hunk<'a>(lines: &[&'a str], at: usize) -> Result<(Hunk<'a>, usize), Error> {
    let (start, mut counts) = header(lines[at]);
    let old_count = counts.old;
    let mut hunk = Hunk { start, ..Hunk::default() };
    // Empty lines at the end: context whose space was trimmed, or the gap before whatever follows.
    let mut gap = 0;
    let mut at = at + 1;
    while let Some(line) = lines.get(at) {
        if line.starts_with("@@") || is_closing(line) {
            break;
        }
        if is_file_header(lines, at, Some(&counts)) {
            return Err(Error::SecondFile { line: at + 1 });
        }
        let (kind, text) = match line.bytes().next() {
            Some(b' ') => (Kind::Context, &line[1..]),
            Some(b'-') => (Kind::Removed, &line[1..]),
            Some(b'+') => (Kind::Added, &line[1..]),
            Some(b'\\') => {
                match hunk.lines.last().map(|line| line.kind) {
                    Some(Kind::Context) => (hunk.old_unended, hunk.new_unended) = (true, true),
                    Some(Kind::Removed) => hunk.old_unended = true,
                    Some(Kind::Added) => hunk.new_unended = true,
                    None => return Err(malformed(lines, at)),
                }
                gap = 0;
                at += 1;
                continue;
            }
            _ if is_blank(line) => (Kind::Context, *line),
            _ => return Err(malformed(lines, at)),
        };
        if is_blank(line) {
            gap += 1;
        } else if hunk.old_unended && kind != Kind::Added || hunk.new_unended && kind != Kind::Removed {
            return Err(malformed(lines, at));
        } else {
            gap = 0;
        }
        counts.see(kind);
        hunk.lines.push(Line { kind, text });
        at += 1;
    }
    let seen = hunk.count(Kind::Added);
    let kept = old_count.and_then(|count| count.checked_sub(seen - gap)).filter(|kept| *kept <= gap).unwrap_or(0);
    hunk.lines.truncate(hunk.lines.len() - gap + kept);
    Ok((hunk, at))
}

/// How many lines a hunk still has, if its header can be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Counts {
    old: Option<usize>,
    new: Option<usize>,
}

impl Counts {
    fn see(&mut self, kind: Kind) {
        if kind != Kind::Added {
            self.old = self.old.map(|left| left.saturating_sub(1));
        }
        if kind != Kind::Removed {
            self.new = self.new.map(|left| left.saturating_sub(1));
        }
    }

    fn expects_more(&self) -> bool {
        self.old.is_some_and(|left| left > 0) && self.new.is_some_and(|left| left > 0)
    }
}

/// Reads `@@ -start,old +start,new @@`; what is missing or no number is unknown.
fn header(line: &str) -> (Option<usize>, Counts) {
    let mut words = line.trim_start_matches('@').split_whitespace();
    let mut range = |mark: char| {
        let range = words.next()?.strip_prefix(mark)?;
        let (start, count) = range.split_once(',').unwrap_or((range, "1"));
        Some((start.parse().ok()?, count.parse().ok()?))
    };
    let old: Option<(usize, usize)> = range('-');
    let new: Option<(usize, usize)> = range('+');
    (old.map(|old| old.0), Counts { old: old.map(|old| old.1), new: new.map(|new| new.1) })
}

/// Says whether another file begins here. `--- a` and `+++ b` may also remove `-- a` and add `++ b`: the counts decide.
fn is_file_header(lines: &[&str], at: usize, counts: Option<&Counts>) -> bool {
    let begins = |offset: usize, mark: &str| lines.get(at + offset).is_some_and(|line| line.starts_with(mark));
    begins(0, "diff --git ")
        || begins(0, "*** Update File: ")
        || begins(0, "--- ") && begins(1, "+++ ") && begins(2, "@@") && !counts.is_some_and(Counts::expects_more)
}

fn is_blank(line: &str) -> bool {
    bare(line).is_empty()
}

fn is_closing(line: &str) -> bool {
    line.starts_with("```") || line.starts_with("*** End ")
}

fn malformed(lines: &[&str], at: usize) -> Error {
    let line = lines.get(at).copied().unwrap_or("");
    Error::Malformed { line: at + 1, text: text::plain(text::first_line(line, 80)) }
}
