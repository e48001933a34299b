//! Reads the status of the clone for an iteration as cheaply as possible: unchanged files are not compared.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ralph_sandbox::Sandbox;
use serde::{Deserialize, Serialize};

use super::super::object_db::DiffStat;
use super::super::raw_diff::{self, GitOutputEnd, PathChange};
use super::super::{Error, Sha};
use super::script::GitScript;

/// The state of the clone, compared with the start of the run and with an earlier tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloneStatus {
    pub head: String,
    /// The index as a tree; HEAD's tree if the index cannot be written as one, as in the middle of a merge.
    pub index: String,
    /// The full name of the checked-out branch, `HEAD` for a detached commit.
    pub branch: String,
    /// The work tree as a tree, including untracked files but not ignored ones.
    pub tree: String,
    /// The tree it was compared with.
    pub from: String,
    /// Lines added and removed since `from`, excluding ralph's own files.
    pub changed_lines: u64,
    /// Paths that differ from `from`, with the hash of their content now (empty: removed).
    pub files: BTreeMap<String, String>,
    /// Uncommitted changes, one line each.
    pub status: String,
    /// Lines per file since the start of the run.
    pub diffstat: String,
    /// Paths that differ from the start of the run: what each is now (`A`, `M` or `D`). Missing in older records.
    #[serde(default)]
    pub since_start: BTreeMap<String, char>,
}

impl CloneStatus {
    /// Returns the same state compared with `from` (empty: with anything), if that needs no new status.
    pub fn compared_with(&self, from: &str) -> Option<Self> {
        if from.is_empty() || self.from == from {
            return Some(self.clone());
        }
        // Nothing has changed since this very tree; what the status was compared with before is another matter.
        (self.tree == from).then(|| Self {
            from: from.to_owned(),
            changed_lines: 0,
            files: BTreeMap::new(),
            ..self.clone()
        })
    }
}

// The index is ralph's own and is kept, so that unchanged files are not read again; a lock on it belongs to a dead
// process. It follows HEAD, otherwise files that are ignored but tracked would be missing from the tree.
const STATUS: &str = r#"set -e
start=$1 from=$2
set -- $(git rev-parse HEAD "HEAD^{tree}" --symbolic-full-name HEAD)
staged=$(git write-tree 2>/dev/null) || staged=$2
export GIT_INDEX_FILE=.git/ralph-index
if [ -e .git/ralph-index.lock ]; then rm -f .git/ralph-index.lock; fi
last=
if [ -f .git/ralph-head ]; then read -r last < .git/ralph-head || :; fi
if [ "$last" != "$1" ] || [ ! -f .git/ralph-index ]; then
  git read-tree -m HEAD 2>/dev/null || { rm -rf .git/ralph-index; git read-tree HEAD; }
  rm -rf .git/ralph-head
  echo "$1" > .git/ralph-head
fi
git add -A --ignore-errors . 2>/dev/null || [ $? = 1 ]
tree=$(git write-tree)
printf '%s %s %s %s\0' "$1" "$staged" "$tree" "$3"
compare() { git diff-tree -r -z --raw --numstat --no-renames --no-abbrev --no-ext-diff --no-textconv "$1" "$2"; }
if [ -n "$from" ] && [ "$tree" != "$from" ]; then compare "$from" "$tree"; fi
printf '#\0'
if [ "$tree" != "$2" ]; then compare "$2" "$tree"; fi
printf '#\0'
if [ "$1" != "$start" ] || [ "$tree" != "$2" ]; then compare "$start^{tree}" "$tree"; fi"#;

/// Reads the status of the clone. `from` is an earlier tree, or empty.
pub async fn read_status(sandbox: &dyn Sandbox, start: &str, from: &str) -> Result<CloneStatus, Error> {
    const DOING: &str = "read the status of the clone";
    let printed = GitScript::new(DOING, STATUS, vec![start, from]).run(sandbox).await?;
    let ending = if printed.cut { GitOutputEnd::Cut } else { GitOutputEnd::Whole };
    parse(&printed.stdout, from, ending).ok_or(Error::UnexpectedOutput { doing: DOING })
}

fn parse(bytes: &[u8], from: &str, ending: GitOutputEnd) -> Option<CloneStatus> {
    let end = bytes.iter().position(|byte| *byte == 0)?;
    let (first, rest) = bytes.split_at_checked(end)?;
    let mut words = std::str::from_utf8(first).ok()?.splitn(4, ' ');
    let mut sha = || Sha::parse(words.next()?).ok();
    let (head, index, tree) = (sha()?, sha()?, sha()?);
    let branch = words.next()?.to_owned();
    let mut sections = raw_diff::parse_sections(rest.get(1..)?, ending)?.into_iter();
    let (changes, stats) = sections.next()?;
    let uncommitted = sections.next().unwrap_or_default().0;
    let (start_changes, start_stats) = sections.next().unwrap_or_default();
    let since_start = DiffStat::of(start_stats);
    let changed = stats.iter().filter(|stat| !is_ralph_file(&stat.path));
    // A binary file has no lines, but its change still counts.
    let changed_lines =
        changed.map(|stat| stat.added.unwrap_or(1).saturating_add(stat.removed.unwrap_or(0)).max(1)).sum();
    let hash = |change: &PathChange| change.new.as_ref().map(|(_, sha)| sha.to_string()).unwrap_or_default();
    Some(CloneStatus {
        head: head.to_string(),
        index: index.to_string(),
        branch,
        tree: tree.to_string(),
        from: from.to_owned(),
        changed_lines,
        files: changes
            .iter()
            .filter(|change| !is_ralph_file(&change.path))
            .map(|change| (change.path.clone(), hash(change)))
            .collect(),
        status: status_text(&uncommitted),
        diffstat: diffstat_text(&since_start),
        since_start: start_changes
            .iter()
            .filter(|change| !is_ralph_file(&change.path) && !change.is_gitlink())
            .map(|change| (change.path.clone(), change_letter(change)))
            .collect(),
    })
}

fn is_ralph_file(path: &str) -> bool {
    path.starts_with(".ralph/")
}

fn change_letter(change: &PathChange) -> char {
    match (&change.old, &change.new) {
        (None, _) => 'A',
        (_, None) => 'D',
        _ => 'M',
    }
}

fn status_text(uncommitted: &[PathChange]) -> String {
    let mut out = String::new();
    for change in uncommitted.iter().filter(|change| !is_ralph_file(&change.path)) {
        writeln!(out, "{} {}", change_letter(change), change.path).expect("writing to a String cannot fail");
    }
    out
}

fn diffstat_text(stat: &DiffStat) -> String {
    let mut out = String::new();
    for file in stat.files.iter().filter(|file| !is_ralph_file(&file.path)) {
        let count = |lines: Option<u64>| lines.map_or_else(|| "-".to_owned(), |lines| lines.to_string());
        writeln!(out, "{}\t{}\t{}", count(file.added), count(file.removed), file.path)
            .expect("writing to a String cannot fail");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "1111111111111111111111111111111111111111";
    const B: &str = "2222222222222222222222222222222222222222";
    const C: &str = "3333333333333333333333333333333333333333";

    #[test]
    fn status_is_parsed() {
        let raw = format!(
            ":000000 100644 {} {B} A\0new.txt\0:100644 100644 {A} {B} M\0.ralph/x\03\t0\tnew.txt\09\t0\t.ralph/x\0",
            "0".repeat(40)
        );
        let text = format!("{A} {A} {B} refs/heads/x\0{raw}#\0#\0");
        let status = parse(text.as_bytes(), A, GitOutputEnd::Whole).unwrap();
        assert_eq!((status.changed_lines, status.files), (3, BTreeMap::from([("new.txt".to_owned(), B.to_owned())])));
        assert_eq!(status.branch, "refs/heads/x");
        assert_eq!(parse(b"x\0#\0", "", GitOutputEnd::Whole), None);
    }

    #[test]
    fn changes_depend_on_the_compared_tree() {
        let status = CloneStatus {
            head: A.to_owned(),
            index: A.to_owned(),
            branch: "refs/heads/x".to_owned(),
            tree: B.to_owned(),
            from: A.to_owned(),
            changed_lines: 3,
            files: BTreeMap::from([("new.txt".to_owned(), B.to_owned())]),
            status: "A new.txt\n".to_owned(),
            diffstat: "3\t0\tnew.txt\n".to_owned(),
            since_start: BTreeMap::from([("new.txt".to_owned(), 'A')]),
        };
        let still = CloneStatus { from: B.to_owned(), changed_lines: 0, files: BTreeMap::new(), ..status.clone() };
        for (from, want) in [("", Some(&status)), (A, Some(&status)), (B, Some(&still)), (C, None)] {
            assert_eq!(status.compared_with(from).as_ref(), want, "{from:?}");
        }
    }
}
