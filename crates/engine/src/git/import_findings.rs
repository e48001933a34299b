//! Finds what a reviewer must know about commits from a sandbox: checked change by change, in every commit and not
//! only in the end state, because history is pushed too. Pure: reading objects is in `import`.

use std::collections::{HashMap, HashSet};

use globset::GlobSet;
use serde::{Deserialize, Serialize};

use super::auto_executed_files;
use super::raw_diff::{CommitChanges, GITLINK_MODE, PathChange, SYMLINK_MODE};
use super::validated_names::is_dotgit;
use super::{SecretScan, Sha};

/// Something in the imported commits that is worth a look, or blocks the import.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ImportFinding {
    /// The first commit with this finding.
    pub commit: Sha,
    /// Safe to print; empty for findings in a commit's message.
    pub path: String,
    #[serde(flatten)]
    pub kind: FindingKind,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "finding", rename_all = "kebab-case")]
pub enum FindingKind {
    /// A symbolic link that may lead out of the tree.
    LinkOut { target: String },
    /// A symbolic link to something that some file system takes for `.git`: blocks the import.
    LinkIntoGit { target: String },
    /// Control characters in a commit message, which a terminal obeys.
    ControlCharacters,
    /// A path that the task or config protects.
    Protected,
    /// A submodule or the file that describes them.
    Submodule,
    /// A name that some file system takes for `.git`: blocks the import.
    DotGit,
    /// A file that some tool runs or obeys by itself.
    AutoRun { why: String },
    /// An executable named like a git hook.
    HookName,
    /// A file large enough to question, and too large to be searched for secrets.
    LargeFile { bytes: u64 },
    /// Text that looks like a credential: blocks the import.
    Secret { what: String },
}

impl FindingKind {
    /// Reports whether the finding forbids keeping anything of the import.
    pub fn is_blocking(&self) -> bool {
        matches!(self, Self::Secret { .. } | Self::DotGit | Self::LinkIntoGit { .. })
    }
}

/// The longest link target: no link can be longer.
const LINK_CAP: usize = 4096;

/// The blobs needed for the checks.
#[derive(Debug, Default)]
pub(crate) struct ImportedBlobs {
    pub(crate) sizes: HashMap<Sha, u64>,
    /// Contents of the blobs small enough to be read.
    pub(crate) contents: HashMap<Sha, Vec<u8>>,
}

/// Checks every change of every commit; returns at most `max` findings, blocking ones first.
pub(crate) fn inspect_commits(
    commits: &[CommitChanges],
    blobs: &ImportedBlobs,
    large: u64,
    protected: &GlobSet,
    secrets: SecretScan<'_>,
    max: usize,
) -> Vec<ImportFinding> {
    let mut seen = HashSet::new();
    let mut findings = Vec::new();
    // A blob is searched once for each version it replaced: the same pair gives the same result.
    let mut searched: HashMap<(Option<Sha>, Sha), Option<String>> = HashMap::new();
    for commit in commits {
        let mut add = |path: &str, kind: FindingKind| {
            if seen.insert((path.to_owned(), kind.clone())) {
                findings.push(ImportFinding {
                    commit: commit.sha.clone(),
                    path: ralph_core::text::strip_control(path),
                    kind,
                });
            }
        };
        if let Some(what) = secrets(&commit.metadata) {
            add("", FindingKind::Secret { what });
        }
        if has_control_characters(&commit.metadata) {
            add("", FindingKind::ControlCharacters);
        }
        for change in &commit.changes {
            check_path(change, protected, secrets, &mut add);
            check_content(change, blobs, large, &mut add);
            let Some((mode, new)) = &change.new else { continue };
            if *mode == GITLINK_MODE {
                continue;
            }
            let old = change.old.as_ref().map(|(_, sha)| sha.clone());
            let what = searched.entry((old.clone(), new.clone())).or_insert_with(|| {
                let new = blobs.contents.get(new)?;
                secrets(&added_lines(old.and_then(|old| blobs.contents.get(&old)).map_or(&[], Vec::as_slice), new))
            });
            if let Some(what) = what.clone() {
                add(&change.path, FindingKind::Secret { what });
            }
        }
    }
    findings.sort_by_key(|finding| !finding.kind.is_blocking());
    findings.truncate(max);
    findings
}

/// Returns whether a text has characters that a terminal obeys instead of showing them.
fn has_control_characters(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text).replace('\r', "");
    ralph_core::text::strip_control(&text) != text
}

fn check_path(
    change: &PathChange,
    protected: &GlobSet,
    secrets: SecretScan<'_>,
    add: &mut dyn FnMut(&str, FindingKind),
) {
    let path = change.path.as_str();
    if protected.is_match(path) {
        add(path, FindingKind::Protected);
    }
    let gitlink = [&change.old, &change.new].into_iter().flatten().any(|(mode, _)| *mode == GITLINK_MODE);
    if gitlink || is_gitmodules(path) {
        add(path, FindingKind::Submodule);
    }
    let Some((mode, _)) = &change.new else { return };
    if path.split('/').any(|part| is_dotgit(part.as_bytes())) {
        add(path, FindingKind::DotGit);
    }
    if let Some(why) = auto_executed_files::autorun_reason(path) {
        add(path, FindingKind::AutoRun { why: why.to_owned() });
    }
    if mode & 0o111 != 0 && *mode & 0o170_000 == 0o100_000 && auto_executed_files::is_hook_name(path) {
        add(path, FindingKind::HookName);
    }
    if let Some(what) = secrets(path.as_bytes()) {
        add(path, FindingKind::Secret { what });
    }
}

fn check_content(change: &PathChange, blobs: &ImportedBlobs, large: u64, add: &mut dyn FnMut(&str, FindingKind)) {
    let Some((mode, sha)) = &change.new else { return };
    if let Some(bytes) = blobs.sizes.get(sha).filter(|bytes| **bytes > large) {
        add(&change.path, FindingKind::LargeFile { bytes: *bytes });
    }
    let content = blobs.contents.get(sha);
    if *mode == SYMLINK_MODE {
        let target = content.map_or_else(|| "?".to_owned(), |bytes| String::from_utf8_lossy(bytes).into_owned());
        if content.is_none() || leaves_tree(&change.path, &target) {
            let into_git = target.split(['/', '\\']).any(|part| is_dotgit(part.as_bytes()));
            let target = ralph_core::text::strip_control(ralph_core::text::head(&target, LINK_CAP));
            let kind = if into_git { FindingKind::LinkIntoGit { target } } else { FindingKind::LinkOut { target } };
            add(&change.path, kind);
        }
    }
    if change.path.rsplit('/').next() == Some("package.json") {
        let old = change.old.as_ref().and_then(|(_, sha)| blobs.contents.get(sha)).map_or(&[][..], Vec::as_slice);
        for script in auto_executed_files::changed_install_scripts(old, content.map_or(&[], Vec::as_slice)) {
            add(&change.path, FindingKind::AutoRun { why: format!("`{script}` runs on install") });
        }
    }
}

/// Reports whether a link may leave the tree: true unless it provably stays inside.
///
/// `..` after a name is never taken as proof: that name may itself be a link, and then its parent is elsewhere.
pub(crate) fn leaves_tree(path: &str, target: &str) -> bool {
    if target.is_empty() || target.starts_with('/') || target.contains(['\\', '\0']) || target.get(1..2) == Some(":") {
        return true;
    }
    let mut depth = path.matches('/').count();
    let mut named = false;
    for part in target.split('/') {
        match part {
            "" | "." => (),
            ".." if named => return true,
            ".." => match depth.checked_sub(1) {
                Some(up) => depth = up,
                None => return true,
            },
            part if is_dotgit(part.as_bytes()) => return true,
            _ => named = true,
        }
    }
    false
}

fn is_gitmodules(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path).trim_end_matches(['.', ' ']).to_ascii_lowercase();
    matches!(name.as_str(), ".gitmodules" | "gitmod~1")
}

/// Returns the lines of `new` that `old` does not have: earlier lines are not this run's doing.
fn added_lines(old: &[u8], new: &[u8]) -> Vec<u8> {
    let known: HashSet<&[u8]> = old.split(|byte| *byte == b'\n').collect();
    let mut added = Vec::new();
    for line in new.split(|byte| *byte == b'\n').filter(|line| !known.contains(line)) {
        added.extend_from_slice(line);
        added.push(b'\n');
    }
    added
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links() {
        for (path, target, out) in [
            ("a", "b", false),
            ("a/b/c", "../../x", false),
            ("a/b/c", "../../../x", true),
            ("a", "..", true),
            ("a/b", "..", false),
            ("a", "/etc/passwd", true),
            ("a", "", true),
            ("a", "./b/./c", false),
            ("d/e/x", "k/..", true),
            ("a", ".git/config", true),
            ("a/b", "../.GIT/hooks", true),
            ("a", "C:/x", true),
            ("a", "\\\\host\\x", true),
            ("a", "ünï", false),
        ] {
            assert_eq!(leaves_tree(path, target), out, "{path} -> {target}");
        }
    }

    fn sha(digit: char) -> Sha {
        Sha::parse(&digit.to_string().repeat(40)).unwrap()
    }

    fn scan(bytes: &[u8]) -> Option<String> {
        String::from_utf8_lossy(bytes).contains("sk-live").then(|| "a key".to_owned())
    }

    fn kinds(path: &str, old: Option<&str>, new: Option<(u32, &str)>) -> Vec<FindingKind> {
        let mut blobs = ImportedBlobs::default();
        let mut side = |digit: char, text: &str| {
            blobs.sizes.insert(sha(digit), text.len() as u64);
            blobs.contents.insert(sha(digit), text.as_bytes().to_vec());
            sha(digit)
        };
        let old = old.map(|text| (0o100_644, side('1', text)));
        let new = new.map(|(mode, text)| (mode, side('2', text)));
        let changes = vec![PathChange { old, new, path: path.to_owned() }];
        let commits = [CommitChanges { sha: sha('c'), parents: vec![], metadata: b"words".to_vec(), changes }];
        let protected = globset::GlobSetBuilder::new().add(globset::Glob::new("tests/**").unwrap()).build().unwrap();
        inspect_commits(&commits, &blobs, 40, &protected, &scan, 9).into_iter().map(|finding| finding.kind).collect()
    }

    #[test]
    fn changes_are_checked() {
        let file = 0o100_644;
        let secret = || FindingKind::Secret { what: "a key".to_owned() };
        let large = "x".repeat(41);
        for (path, old, new, want) in [
            ("src/a.rs", None, Some((file, "fn main() {}")), vec![]),
            ("tests/a.rs", Some("x"), Some((file, "y")), vec![FindingKind::Protected]),
            ("tests/a.rs", Some("x"), None, vec![FindingKind::Protected]),
            ("sub", None, Some((GITLINK_MODE, "")), vec![FindingKind::Submodule]),
            (".gitmodules", None, Some((file, "")), vec![FindingKind::Submodule]),
            ("x/.git/y", None, Some((file, "")), vec![FindingKind::DotGit]),
            ("pre-commit", None, Some((0o100_755, "")), vec![FindingKind::HookName]),
            ("pre-commit", None, Some((file, "")), vec![]),
            ("big", None, Some((file, large.as_str())), vec![FindingKind::LargeFile { bytes: 41 }]),
            ("l", None, Some((SYMLINK_MODE, "/etc")), vec![FindingKind::LinkOut { target: "/etc".to_owned() }]),
            ("a", None, Some((file, "k=sk-live-1")), vec![secret()]),
            ("a", Some("k=sk-live-1"), Some((file, "k=sk-live-1\nmore")), vec![]),
            ("a", Some("k=sk-live-1"), Some((file, "k=sk-live-2")), vec![secret()]),
            ("sk-live", None, Some((file, "")), vec![secret()]),
        ] {
            assert_eq!(kinds(path, old, new), want, "{path}");
        }
    }

    #[test]
    fn messages_are_searched_and_blocking_findings_come_first() {
        let change = PathChange { old: None, new: Some((SYMLINK_MODE, sha('9'))), path: "unread".to_owned() };
        let commit =
            CommitChanges { sha: sha('c'), parents: vec![], metadata: b"use sk-live".to_vec(), changes: vec![change] };
        let kinds: Vec<_> = inspect_commits(&[commit], &ImportedBlobs::default(), 9, &GlobSet::empty(), &scan, 9)
            .into_iter()
            .map(|finding| finding.kind)
            .collect();
        let want =
            vec![FindingKind::Secret { what: "a key".to_owned() }, FindingKind::LinkOut { target: "?".to_owned() }];
        assert_eq!(kinds, want);
    }

    proptest::proptest! {
        #[test]
        fn hostile_links_never_panic(path in ".{0,20}", target in ".{0,20}") {
            let _ = leaves_tree(&path, &target);
            let _ = auto_executed_files::autorun_reason(&path);
        }
    }
}
