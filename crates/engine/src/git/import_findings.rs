//! Finds what a reviewer must know about commits from a sandbox: checked change by change, in every commit and not
//! only in the end state, because history is pushed too. Pure: what it must know of an object's content is in
//! `object_facts`.

use std::collections::{HashMap, HashSet};

use globset::GlobSet;
use serde::{Deserialize, Serialize};

use super::auto_executed_files;
use super::object_facts::{BlobFacts, CommitTextFacts, ComparedSecrets, is_package_file};
use super::raw_diff::{GITLINK_MODE, PathChange, SYMLINK_MODE};
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

/// Checks commits one after the other, in order, and collects what it finds.
pub(crate) struct ImportInspection<'a> {
    blobs: &'a HashMap<Sha, BlobFacts>,
    compared: &'a ComparedSecrets,
    large: u64,
    protected: &'a GlobSet,
    secrets: SecretScan<'a>,
    findings: FindingList,
}

impl<'a> ImportInspection<'a> {
    /// Starts an inspection that returns at most `max` findings.
    pub(crate) fn new(
        blobs: &'a HashMap<Sha, BlobFacts>,
        compared: &'a ComparedSecrets,
        large: u64,
        protected: &'a GlobSet,
        secrets: SecretScan<'a>,
        max: usize,
    ) -> Self {
        Self { blobs, compared, large, protected, secrets, findings: FindingList::new(max) }
    }

    /// Checks what a commit says of itself.
    pub(crate) fn inspect_text(&mut self, commit: &Sha, text: &CommitTextFacts) {
        if let Some(what) = text.secret.clone() {
            self.findings.add(commit, "", FindingKind::Secret { what });
        }
        if text.control_characters {
            self.findings.add(commit, "", FindingKind::ControlCharacters);
        }
    }

    /// Checks one change of a commit.
    pub(crate) fn inspect_change(&mut self, commit: &Sha, change: &PathChange) {
        let Self { blobs, compared, large, protected, secrets, findings } = self;
        let add = &mut |path: &str, kind: FindingKind| findings.add(commit, path, kind);
        check_path(change, protected, *secrets, add);
        check_content(change, blobs, *large, add);
        let Some((mode, new)) = &change.new else { return };
        if *mode == GITLINK_MODE {
            return;
        }
        let old = change.old.as_ref().map(|(_, sha)| sha.clone());
        let found = match old.and_then(|old| compared.get(&(old, new.clone()))) {
            Some(found) => found.clone(),
            None => blobs.get(new).and_then(|blob| blob.secret.clone()),
        };
        if let Some(what) = found {
            add(&change.path, FindingKind::Secret { what });
        }
    }

    /// Returns what was found, blocking findings first.
    pub(crate) fn finish(self) -> Vec<ImportFinding> {
        let FindingList { max, mut blocking, mut others, .. } = self.findings;
        blocking.append(&mut others);
        blocking.truncate(max);
        blocking
    }
}

/// Findings in the order of their commits, each once. Only those that can be reported are kept: a hostile import has
/// any number.
struct FindingList {
    max: usize,
    seen: HashSet<(String, FindingKind)>,
    blocking: Vec<ImportFinding>,
    others: Vec<ImportFinding>,
}

impl FindingList {
    fn new(max: usize) -> Self {
        Self { max, seen: HashSet::new(), blocking: Vec::new(), others: Vec::new() }
    }

    fn add(&mut self, commit: &Sha, path: &str, kind: FindingKind) {
        let list = if kind.is_blocking() { &mut self.blocking } else { &mut self.others };
        if list.len() < self.max && self.seen.insert((path.to_owned(), kind.clone())) {
            list.push(ImportFinding { commit: commit.clone(), path: ralph_core::text::strip_control(path), kind });
        }
    }
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

fn check_content(
    change: &PathChange,
    blobs: &HashMap<Sha, BlobFacts>,
    large: u64,
    add: &mut dyn FnMut(&str, FindingKind),
) {
    let Some((mode, sha)) = &change.new else { return };
    let blob = blobs.get(sha);
    if let Some(bytes) = blob.map(|blob| blob.size).filter(|bytes| *bytes > large) {
        add(&change.path, FindingKind::LargeFile { bytes });
    }
    if *mode == SYMLINK_MODE {
        match blob.and_then(|blob| blob.link.as_ref()) {
            None => add(&change.path, FindingKind::LinkOut { target: "?".to_owned() }),
            Some(link) if !link.leaves_tree(&change.path) => (),
            Some(link) if link.into_git => add(&change.path, FindingKind::LinkIntoGit { target: link.shown.clone() }),
            Some(link) => add(&change.path, FindingKind::LinkOut { target: link.shown.clone() }),
        }
    }
    if is_package_file(&change.path) {
        let scripts = |sha| blobs.get(sha).map(|blob: &BlobFacts| blob.scripts.clone()).unwrap_or_default();
        let old = change.old.as_ref().map(|(_, sha)| scripts(sha)).unwrap_or_default();
        for script in scripts(sha).changed_since(&old) {
            add(&change.path, FindingKind::AutoRun { why: format!("`{script}` runs on install") });
        }
    }
}

fn is_gitmodules(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path).trim_end_matches(['.', ' ']).to_ascii_lowercase();
    matches!(name.as_str(), ".gitmodules" | "gitmod~1")
}

#[cfg(test)]
mod tests {
    use super::super::object_facts::{BlobUses, added_lines, pairs_to_compare, wanted_blobs};
    use super::super::raw_diff::CommitChanges;
    use super::*;

    fn sha(digit: char) -> Sha {
        Sha::parse(&digit.to_string().repeat(40)).unwrap()
    }

    fn scan(bytes: &[u8]) -> Option<String> {
        String::from_utf8_lossy(bytes).contains("sk-live").then(|| "a key".to_owned())
    }

    fn kinds(path: &str, old: Option<&str>, new: Option<(u32, &str)>) -> Vec<FindingKind> {
        let content = |digit: char| match (old, new) {
            (Some(text), _) if digit == '1' => text,
            (_, Some((_, text))) => text,
            _ => "",
        };
        let side = |mode, digit| (mode, sha(digit));
        let change = PathChange {
            old: old.map(|_| side(0o100_644, '1')),
            new: new.map(|(mode, _)| side(mode, '2')),
            path: path.to_owned(),
        };
        let commits =
            [CommitChanges { sha: sha('c'), parents: vec![], metadata: vec![], changes: vec![change.clone()] }];
        let read = |(sha, uses): (Sha, BlobUses)| {
            let text = content(sha.as_str().chars().next().unwrap()).as_bytes();
            let large = text.len() > 40;
            let facts = if large { BlobFacts::unread(text.len() as u64) } else { BlobFacts::of(text, uses, &scan) };
            (sha, facts)
        };
        let blobs: HashMap<Sha, BlobFacts> = wanted_blobs(&commits).into_iter().map(read).collect();
        let added = |pair: (Sha, Sha)| {
            let added = added_lines(content('1').as_bytes(), content('2').as_bytes());
            (pair, scan(&added))
        };
        let compared = pairs_to_compare(&commits, &blobs).into_iter().map(added).collect();
        let protected = globset::GlobSetBuilder::new().add(globset::Glob::new("tests/**").unwrap()).build().unwrap();
        let mut inspection = ImportInspection::new(&blobs, &compared, 40, &protected, &scan, 9);
        inspection.inspect_text(&sha('c'), &CommitTextFacts::of(b"words", &scan));
        inspection.inspect_change(&sha('c'), &change);
        inspection.finish().into_iter().map(|finding| finding.kind).collect()
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
        let (blobs, compared, none) = (HashMap::new(), ComparedSecrets::new(), GlobSet::empty());
        let mut inspection = ImportInspection::new(&blobs, &compared, 9, &none, &scan, 9);
        inspection.inspect_change(&sha('b'), &change);
        inspection.inspect_text(&sha('c'), &CommitTextFacts::of(b"use sk-live", &scan));
        let kinds: Vec<_> = inspection.finish().into_iter().map(|finding| finding.kind).collect();
        let want =
            vec![FindingKind::Secret { what: "a key".to_owned() }, FindingKind::LinkOut { target: "?".to_owned() }];
        assert_eq!(kinds, want);
    }

    proptest::proptest! {
        #[test]
        fn hostile_paths_never_panic(path in ".{0,20}") {
            let _ = auto_executed_files::autorun_reason(&path);
        }
    }
}
