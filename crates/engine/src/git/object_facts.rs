//! Reduces the content of an imported object to what the checks must know of it, so that each object is read once and
//! none is kept. Pure: reading objects is in `object_quarantine`.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::auto_executed_files::InstallScripts;
use super::raw_diff::{CommitChanges, GITLINK_MODE, SYMLINK_MODE};
use super::validated_names::is_dotgit;
use super::{SecretScan, Sha};

/// The longest link target that is shown: no link can be longer.
const LINK_CAP: usize = 4096;

/// What the checks must know of a blob.
#[derive(Debug, Clone, Default)]
pub(crate) struct BlobFacts {
    pub(crate) size: u64,
    /// Secret-shaped text anywhere in it.
    pub(crate) secret: Option<String>,
    /// Where it leads, if it is used as a symbolic link and small enough to be read.
    pub(crate) link: Option<LinkTarget>,
    /// Empty unless it is used as a `package.json`.
    pub(crate) scripts: InstallScripts,
}

impl BlobFacts {
    pub(crate) fn of(content: &[u8], uses: BlobUses, secrets: SecretScan<'_>) -> Self {
        Self {
            size: content.len() as u64,
            secret: if uses.new { secrets(content) } else { None },
            link: uses.link.then(|| LinkTarget::of(&String::from_utf8_lossy(content))),
            scripts: if uses.package { InstallScripts::of(content) } else { InstallScripts::default() },
        }
    }

    /// Returns what is known of a blob that is too large to be read.
    pub(crate) fn unread(size: u64) -> Self {
        Self { size, ..Self::default() }
    }
}

/// What the changes of an import use a blob for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct BlobUses {
    /// It is what a change leaves, not only what one replaces.
    pub(crate) new: bool,
    pub(crate) link: bool,
    pub(crate) package: bool,
}

/// Lists the blobs that must be read, each once: what was changed to, and the `package.json` files before their change.
///
/// Versions of one file follow each other, newest first: in a pack they are usually stored as changes to each other in
/// this order, and git then has the one it needs at hand.
pub(crate) fn wanted_blobs(commits: &[CommitChanges]) -> Vec<(Sha, BlobUses)> {
    let mut uses: HashMap<&Sha, BlobUses> = HashMap::new();
    let mut by_path: BTreeMap<&str, Vec<&Sha>> = BTreeMap::new();
    for change in commits.iter().rev().flat_map(|commit| commit.changes.iter().rev()) {
        let package = is_package_file(&change.path);
        let old = change.old.as_ref().filter(|_| package).map(|old| (old, false));
        for ((mode, sha), new) in change.new.as_ref().map(|new| (new, true)).into_iter().chain(old) {
            if *mode == GITLINK_MODE {
                continue;
            }
            let known = uses.entry(sha).or_insert_with(|| {
                by_path.entry(&change.path).or_default().push(sha);
                BlobUses::default()
            });
            known.new |= new;
            known.link |= new && *mode == SYMLINK_MODE;
            known.package |= package;
        }
    }
    let ordered = by_path.into_values().flatten();
    ordered.filter_map(|sha| Some((sha.clone(), *uses.get(sha)?))).collect()
}

pub(crate) fn is_package_file(path: &str) -> bool {
    path.rsplit('/').next() == Some("package.json")
}

/// Where a symbolic link leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LinkTarget {
    /// Its text, safe to print.
    pub(crate) shown: String,
    /// A part of it is something that some file system takes for `.git`.
    pub(crate) into_git: bool,
    /// It may leave the tree from wherever it is.
    leaves: bool,
    /// How many folders it goes up before it names anything.
    ups: usize,
}

impl LinkTarget {
    /// `..` after a name is never taken as proof that a link stays inside: that name may itself be a link, and then its
    /// parent is elsewhere.
    pub(crate) fn of(target: &str) -> Self {
        let mut leaves = target.is_empty()
            || target.starts_with('/')
            || target.contains(['\\', '\0'])
            || target.get(1..2) == Some(":");
        let (mut ups, mut named) = (0, false);
        for part in target.split('/') {
            match part {
                "" | "." => (),
                ".." if named => leaves = true,
                ".." => ups += 1,
                part => {
                    leaves |= is_dotgit(part.as_bytes());
                    named = true;
                }
            }
        }
        let into_git = target.split(['/', '\\']).any(|part| is_dotgit(part.as_bytes()));
        let shown = ralph_core::text::strip_control(ralph_core::text::head(target, LINK_CAP));
        Self { shown, into_git, leaves, ups }
    }

    /// Reports whether the link at a path may leave the tree: true unless it provably stays inside.
    pub(crate) fn leaves_tree(&self, path: &str) -> bool {
        self.leaves || self.ups > path.matches('/').count()
    }
}

/// What the checks must know of a commit's header and message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CommitTextFacts {
    pub(crate) secret: Option<String>,
    pub(crate) control_characters: bool,
}

impl CommitTextFacts {
    pub(crate) fn of(text: &[u8], secrets: SecretScan<'_>) -> Self {
        Self { secret: secrets(text), control_characters: has_control_characters(text) }
    }
}

/// Returns whether a text has characters that a terminal obeys instead of showing them.
fn has_control_characters(text: &[u8]) -> bool {
    let text = String::from_utf8_lossy(text).replace('\r', "");
    ralph_core::text::strip_control(&text) != text
}

/// The secrets in the lines that a blob has and the one it replaced has not, for pairs that were compared.
pub(crate) type ComparedSecrets = HashMap<(Sha, Sha), Option<String>>;

/// Lists the pairs, old and new, that must be compared: the new blob has a secret, which the old one may have had too.
pub(crate) fn pairs_to_compare(commits: &[CommitChanges], blobs: &HashMap<Sha, BlobFacts>) -> Vec<(Sha, Sha)> {
    let has_secret = |sha: &Sha| blobs.get(sha).is_some_and(|blob| blob.secret.is_some());
    let mut listed = HashSet::new();
    let mut pairs = Vec::new();
    for change in commits.iter().flat_map(|commit| &commit.changes) {
        let (Some((old_mode, old)), Some((_, new))) = (&change.old, &change.new) else { continue };
        if *old_mode != GITLINK_MODE && has_secret(new) && listed.insert((old, new)) {
            pairs.push((old.clone(), new.clone()));
        }
    }
    pairs
}

/// Returns the lines of `new` that `old` does not have: earlier lines are not this run's doing. A key in several lines is
/// new as a whole, because its first and last line are those of every key.
pub(crate) fn added_lines(old: &[u8], new: &[u8]) -> Vec<u8> {
    let known: HashSet<&[u8]> = old.split(|byte| *byte == b'\n').collect();
    let lines: Vec<&[u8]> = new.split(|byte| *byte == b'\n').collect();
    let is_at = |line: &[u8], start: &[u8]| line.trim_ascii_start().starts_with(start);
    let (mut added, mut rest) = (Vec::new(), lines.as_slice());
    while let Some(first) = rest.first() {
        let end = || rest.iter().take(LONGEST_KEY).position(|line| is_at(line, b"-----END "));
        let size = if is_at(first, b"-----BEGIN ") { end().map_or(1, |end| end + 1) } else { 1 };
        let (block, after) = rest.split_at(size);
        if block.iter().any(|line| !known.contains(line)) {
            for line in block {
                added.extend_from_slice(line);
                added.push(b'\n');
            }
        }
        rest = after;
    }
    added
}

/// How many lines a key has at most.
const LONGEST_KEY: usize = 200;

#[cfg(test)]
mod tests {
    use super::super::raw_diff::PathChange;
    use super::*;

    #[test]
    fn a_replaced_key_is_new_as_a_whole() {
        let key = |body: &str| format!("a\n-----BEGIN PRIVATE KEY-----\n{body}\n-----END PRIVATE KEY-----\nz\n");
        let added = |old: &str, new: &str| String::from_utf8(added_lines(old.as_bytes(), new.as_bytes())).unwrap();
        assert_eq!(added(&key("old"), &key("old")), "");
        let block = "-----BEGIN PRIVATE KEY-----\nnew\n-----END PRIVATE KEY-----\n";
        assert_eq!(added(&key("old"), &key("new")), block);
        assert_eq!(added("a\nb\n", "a\nc\nb\n"), "c\n");
        assert_eq!(added("", "-----BEGIN X\n"), "-----BEGIN X\n");
    }

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
            assert_eq!(LinkTarget::of(target).leaves_tree(path), out, "{path} -> {target}");
        }
    }

    fn sha(digit: char) -> Sha {
        Sha::parse(&digit.to_string().repeat(40)).unwrap()
    }

    fn commit(changes: &[(Option<char>, Option<char>, &str)]) -> CommitChanges {
        let side = |digit: Option<char>| digit.map(|digit| (0o100_644, sha(digit)));
        let changes = changes.iter().map(|(old, new, path)| PathChange {
            old: side(*old),
            new: side(*new),
            path: (*path).to_owned(),
        });
        CommitChanges { sha: sha('c'), parents: vec![], metadata: vec![], changes: changes.collect() }
    }

    #[test]
    fn each_blob_is_wanted_once() {
        let commits = [
            commit(&[(None, Some('1'), "b"), (None, Some('2'), "a"), (Some('7'), Some('8'), "package.json")]),
            commit(&[(Some('1'), Some('3'), "b"), (Some('2'), Some('1'), "a")]),
            commit(&[(Some('3'), Some('1'), "b"), (Some('1'), None, "a")]),
        ];
        let new = BlobUses { new: true, ..BlobUses::default() };
        let package = |new| BlobUses { new, package: true, ..BlobUses::default() };
        let want = [('2', new), ('1', new), ('3', new), ('8', package(true)), ('7', package(false))];
        assert_eq!(wanted_blobs(&commits), want.map(|(digit, uses)| (sha(digit), uses)));
    }

    #[test]
    fn only_what_has_a_secret_is_compared() {
        let commits = [
            commit(&[(Some('1'), Some('2'), "a"), (Some('1'), Some('3'), "b"), (None, Some('2'), "c")]),
            commit(&[(Some('1'), Some('2'), "d"), (Some('3'), Some('2'), "b")]),
        ];
        let facts = |secret: Option<&str>| BlobFacts { secret: secret.map(str::to_owned), ..BlobFacts::default() };
        let blobs = HashMap::from([(sha('2'), facts(Some("a key"))), (sha('3'), facts(None))]);
        let want = vec![(sha('1'), sha('2')), (sha('3'), sha('2'))];
        assert_eq!(pairs_to_compare(&commits, &blobs), want);
    }

    proptest::proptest! {
        #[test]
        fn hostile_links_never_panic(path in ".{0,20}", target in ".{0,20}") {
            let _ = LinkTarget::of(&target).leaves_tree(&path);
        }
    }
}
