//! Parses git's `-z` output: raw changes, line counts, tree listings. Nothing here assumes that it is well formed.

use serde::{Deserialize, Serialize};

use super::Sha;

/// One changed path between two trees.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathChange {
    /// As git stores it, `None` where it does not exist on that side.
    pub old: Option<(u32, Sha)>,
    pub new: Option<(u32, Sha)>,
    pub path: String,
}

impl PathChange {
    /// Returns whether it is a repository inside the repository, of which only the commit is known.
    pub fn is_gitlink(&self) -> bool {
        [&self.old, &self.new].into_iter().flatten().any(|(mode, _)| *mode == GITLINK_MODE)
    }
}

/// Lines added to and removed from one file; `None` for a binary one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileDiffStat {
    pub path: String,
    pub added: Option<u64>,
    pub removed: Option<u64>,
}

/// The modes that git gives to symbolic links and submodules.
pub(crate) const SYMLINK_MODE: u32 = 0o120_000;
pub(crate) const GITLINK_MODE: u32 = 0o160_000;

/// Parses `:mode mode sha sha S` without its path.
pub(crate) fn parse_change(meta: &[u8], path: &[u8]) -> Option<PathChange> {
    let meta = std::str::from_utf8(meta).ok()?.strip_prefix(':')?;
    let mut parts = meta.split(' ');
    let mut mode = || u32::from_str_radix(parts.next()?, 8).ok();
    let (old_mode, new_mode) = (mode()?, mode()?);
    let mut sha = || Sha::parse(parts.next()?).ok();
    let (old, new) = (sha()?, sha()?);
    let side = |mode: u32, sha: Sha| (mode != 0).then_some((mode, sha));
    Some(PathChange { old: side(old_mode, old), new: side(new_mode, new), path: lossy(path) })
}

/// The changes and line counts of one comparison.
pub(crate) type TreeDiff = (Vec<PathChange>, Vec<FileDiffStat>);

/// Parses the output of `diff-tree -r -z --raw --numstat`; `None` if it is not that.
pub(crate) fn parse_diff(bytes: &[u8]) -> Option<TreeDiff> {
    parse_sections(bytes, GitOutputEnd::Whole)?.into_iter().next()
}

/// Whether output was read to its end or may stop anywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GitOutputEnd {
    Whole,
    Cut,
}

/// Parses several comparisons with a `#` token between them; there is always a first one.
pub(crate) fn parse_sections(bytes: &[u8], ending: GitOutputEnd) -> Option<Vec<TreeDiff>> {
    let bytes = match ending {
        GitOutputEnd::Whole => bytes,
        GitOutputEnd::Cut => bytes.get(..bytes.iter().rposition(|byte| *byte == 0).map_or(0, |at| at + 1))?,
    };
    let mut sections = vec![TreeDiff::default()];
    // Nothing follows the last NUL.
    let mut tokens = bytes.strip_suffix(b"\0").unwrap_or(bytes).split(|byte| *byte == 0);
    while let Some(token) = tokens.next() {
        let last = sections.last_mut()?;
        if token == b"#" {
            sections.push(TreeDiff::default());
        } else if token.starts_with(b":") {
            match tokens.next() {
                Some(path) => last.0.push(parse_change(token, path)?),
                None if ending == GitOutputEnd::Cut => break,
                None => return None,
            }
        } else if !token.is_empty() {
            last.1.push(parse_stat(token)?);
        }
    }
    Some(sections)
}

fn parse_stat(token: &[u8]) -> Option<FileDiffStat> {
    let mut parts = token.splitn(3, |byte| *byte == b'\t');
    let mut count = || -> Option<Option<u64>> {
        let text = std::str::from_utf8(parts.next()?).ok()?;
        if text == "-" { Some(None) } else { text.parse().ok().map(Some) }
    };
    let (added, removed) = (count()?, count()?);
    Some(FileDiffStat { path: lossy(parts.next()?), added, removed })
}

/// One commit and its changes, as `log -z --raw` prints it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CommitChanges {
    pub(crate) sha: Sha,
    pub(crate) parents: Vec<Sha>,
    /// Author, committer, message, and the commit as it is stored.
    pub(crate) metadata: Vec<u8>,
    pub(crate) changes: Vec<PathChange>,
}

/// The `log` format that [`parse_log`] reads.
pub(crate) const LOG_FORMAT: &str = "--format=%H%x00%P%x00%an <%ae>%n%cn <%ce>%n%B%x00";

pub(crate) fn parse_log(bytes: &[u8]) -> Option<Vec<CommitChanges>> {
    let mut commits: Vec<CommitChanges> = Vec::new();
    let mut tokens = bytes.split(|byte| *byte == 0);
    while let Some(token) = tokens.next() {
        let token = token.strip_prefix(b"\n").unwrap_or(token);
        if token.is_empty() {
            continue;
        }
        if token.starts_with(b":") {
            let change = parse_change(token, tokens.next()?)?;
            commits.last_mut()?.changes.push(change);
            continue;
        }
        let sha = Sha::parse(std::str::from_utf8(token).ok()?).ok()?;
        let parents = std::str::from_utf8(tokens.next()?).ok()?;
        let parents = parents.split_whitespace().map(|parent| Sha::parse(parent).ok()).collect::<Option<Vec<_>>>()?;
        let metadata = tokens.next()?.to_vec();
        commits.push(CommitChanges { sha, parents, metadata, changes: Vec::new() });
    }
    Some(commits)
}

/// Counts the changes in the output of `log` without parsing them: never too few, and at most those that messages pose
/// as.
pub(crate) fn count_changes(bytes: &[u8]) -> usize {
    let is_change = |token: &&[u8]| token.strip_prefix(b"\n").unwrap_or(token).starts_with(b":");
    bytes.split(|byte| *byte == 0).filter(is_change).count()
}

/// Joins items with a terminator after each: the list format that git reads.
pub(crate) fn terminated_list<'a>(items: impl IntoIterator<Item = &'a str>, end: char) -> String {
    items.into_iter().fold(String::new(), |mut text, item| {
        text.push_str(item);
        text.push(end);
        text
    })
}

pub(crate) fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Splits `<sha> blob <size>\n<content>\n` off the front.
pub(crate) fn split_blob(bytes: &[u8]) -> Option<(Sha, &[u8], &[u8])> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let (line, rest) = bytes.split_at_checked(end)?;
    let mut parts = std::str::from_utf8(line).ok()?.split(' ');
    let sha = Sha::parse(parts.next()?).ok()?;
    let size: usize = parts.nth(1)?.parse().ok()?;
    let (content, rest) = rest.get(1..)?.split_at_checked(size)?;
    Some((sha, content, rest.get(1..)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: &str = "1111111111111111111111111111111111111111";
    const B: &str = "2222222222222222222222222222222222222222";
    const ZERO: &str = "0000000000000000000000000000000000000000";

    fn sha(text: &str) -> Sha {
        Sha::parse(text).unwrap()
    }

    #[test]
    fn raw_and_counts() {
        let text = format!(":100644 000000 {A} {ZERO} D\0f\0:000000 120000 {ZERO} {B} A\0:g\0-\t-\tf\x002\t0\t:g\0");
        let want = (
            vec![
                PathChange { old: Some((0o100_644, sha(A))), new: None, path: "f".to_owned() },
                PathChange { old: None, new: Some((SYMLINK_MODE, sha(B))), path: ":g".to_owned() },
            ],
            vec![
                FileDiffStat { path: "f".to_owned(), added: None, removed: None },
                FileDiffStat { path: ":g".to_owned(), added: Some(2), removed: Some(0) },
            ],
        );
        assert_eq!(parse_diff(text.as_bytes()), Some(want));
        for odd in ["x\0", ":1 2\0f\0", ":100644 000000\0", "1\t2\0"] {
            assert_eq!(parse_diff(odd.as_bytes()), None, "{odd:?}");
        }
    }

    #[test]
    fn cut_text_keeps_whole_records() {
        let change = |path: &str| PathChange { old: None, new: Some((0o100_644, sha(A))), path: path.to_owned() };
        let meta = format!(":000000 100644 {ZERO} {A} A\0");
        let text = format!("{meta}#\0#\0{meta}g\0{meta}");
        let want = vec![(vec![change("#")], vec![]), (vec![change("g")], vec![])];
        assert_eq!(parse_sections(text.as_bytes(), GitOutputEnd::Cut), Some(want.clone()));
        assert_eq!(parse_sections(format!("{text}hal").as_bytes(), GitOutputEnd::Cut), Some(want));
        assert_eq!(parse_sections(text.as_bytes(), GitOutputEnd::Whole), None);
        assert_eq!(parse_sections(b"", GitOutputEnd::Cut), Some(vec![(vec![], vec![])]));
    }

    #[test]
    fn a_message_cannot_pose_as_a_change() {
        let message = format!("n <e>\nn <e>\n:000000 120000 {ZERO} {B} A\n");
        let text = format!("{A}\0{B}\0{message}\0\0\n:000000 100644 {ZERO} {B} A\0f\0{B}\0\0m\0\0");
        let want = vec![
            CommitChanges {
                sha: sha(A),
                parents: vec![sha(B)],
                metadata: message.into_bytes(),
                changes: vec![PathChange { old: None, new: Some((0o100_644, sha(B))), path: "f".to_owned() }],
            },
            CommitChanges { sha: sha(B), parents: vec![], metadata: b"m".to_vec(), changes: vec![] },
        ];
        assert_eq!(parse_log(text.as_bytes()), Some(want));
    }

    proptest::proptest! {
        #[test]
        fn hostile_text_never_panics(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
            let _ = parse_diff(&bytes);
            let _ = parse_sections(&bytes, GitOutputEnd::Cut);
            let _ = parse_log(&bytes);
        }
    }
}
