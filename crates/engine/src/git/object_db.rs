//! Reads commits, trees and files of a host repository by name: no index, no work tree, no filters, no external diff.
//! Works on the user's repository and on a run's own alike.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::raw_diff::{self, FileDiffStat, PathChange, lossy};
use super::subprocess::{GitCommand, GitOverflow, GitProgram};
use super::validated_names::tree_path;
use super::{CommitStamp, Error, Sha};

/// The notes ref that holds receipts beside their commits.
const NOTES_REF: &str = "refs/notes/ralph";

/// The objects of one repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectDb {
    pub(crate) tool: GitProgram,
    pub(crate) git_dir: PathBuf,
}

/// Limits the size of a diff.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiffLimits {
    pub bytes: usize,
    pub context: u32,
}

impl Default for DiffLimits {
    fn default() -> Self {
        Self { bytes: 1 << 20, context: 3 }
    }
}

/// A diff as text; `cut` if there was more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiffText {
    pub bytes: Vec<u8>,
    pub cut: bool,
}

/// Changed files with their counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiffStat {
    pub files: Vec<FileDiffStat>,
    pub added: u64,
    pub removed: u64,
}

impl DiffStat {
    pub(crate) fn of(files: Vec<FileDiffStat>) -> Self {
        let sum = |count: fn(&FileDiffStat) -> Option<u64>| files.iter().filter_map(count).fold(0, u64::saturating_add);
        Self { added: sum(|file| file.added), removed: sum(|file| file.removed), files }
    }
}

/// One commit in a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitLogEntry {
    pub sha: Sha,
    pub at: jiff::Timestamp,
    pub author: String,
    pub subject: String,
}

/// One file of a commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeEntry {
    pub mode: u32,
    pub sha: Sha,
    pub path: String,
}

impl ObjectDb {
    pub fn git_dir(&self) -> &Path {
        &self.git_dir
    }

    pub(crate) fn command(&self, doing: &'static str) -> GitCommand<'_> {
        self.tool.command(doing).git_dir(&self.git_dir)
    }

    /// Returns the commit that a name resolves to.
    pub async fn resolve_commit(&self, name: &str) -> Result<Option<Sha>, Error> {
        let call = self.command("resolve a name").args(["rev-parse", "--verify", "--quiet", "--end-of-options"]);
        let done = call.arg(format!("{name}^{{commit}}")).run().await?;
        if done.code == 0 { Sha::parse(&done.text()).map(Some) } else { Ok(None) }
    }

    pub async fn tree_of(&self, commit: &Sha) -> Result<Sha, Error> {
        let call = self.command("find a tree").args(["rev-parse", "--verify", "--quiet", "--end-of-options"]);
        let done = call.arg(format!("{commit}^{{tree}}")).run().await?;
        if done.code == 0 { Sha::parse(&done.text()) } else { Err(Error::NoCommit { name: commit.to_string() }) }
    }

    /// Lists every file of a commit.
    pub async fn files_at(&self, commit: &Sha) -> Result<Vec<TreeEntry>, Error> {
        const DOING: &str = "list the files of a commit";
        let done =
            self.command(DOING).args(["ls-tree", "-r", "-z", "--full-tree", commit.as_str()]).run_checked().await?;
        let entries = done.stdout.split(|byte| *byte == 0).filter(|record| !record.is_empty()).map(tree_entry);
        entries.collect::<Option<Vec<_>>>().ok_or(Error::UnexpectedOutput { doing: DOING })
    }

    /// Reads a file of a commit as it is stored, without conversion.
    pub async fn file_at(&self, commit: &Sha, path: &str, cap: usize) -> Result<Vec<u8>, Error> {
        let path = tree_path(path)?;
        let call = self.command("read a file of a commit").args(["cat-file", "blob"]);
        let done = call.arg(format!("{commit}:{path}")).cap(cap, GitOverflow::Fail).run().await?;
        if done.code == 0 {
            return Ok(done.stdout);
        }
        Err(Error::NoFile { sha: commit.to_string(), path: path.to_owned() })
    }

    /// Reads one blob.
    pub async fn file_at_blob(&self, sha: &Sha, cap: usize) -> Result<Vec<u8>, Error> {
        let call = self.command("read a file").args(["cat-file", "blob", sha.as_str()]);
        Ok(call.cap(cap, GitOverflow::Fail).run_checked().await?.stdout)
    }

    /// Reads whole blobs in one process; `None` if they exceed the cap.
    pub(crate) async fn read_blobs(&self, shas: &[&Sha], cap: usize) -> Result<Option<HashMap<Sha, Vec<u8>>>, Error> {
        const DOING: &str = "read files of a commit";
        if shas.is_empty() {
            return Ok(Some(HashMap::new()));
        }
        let names = raw_diff::terminated_list(shas.iter().map(|sha| sha.as_str()), '\n');
        let call = self.command(DOING).args(["cat-file", "--batch", "--buffer"]).bytes(names);
        let done = call.cap(cap, GitOverflow::Cut).run_checked().await?;
        if done.cut {
            return Ok(None);
        }
        let mut contents = HashMap::new();
        let mut rest = done.stdout.as_slice();
        while !rest.is_empty() {
            let (sha, content, behind) = raw_diff::split_blob(rest).ok_or(Error::UnexpectedOutput { doing: DOING })?;
            contents.insert(sha, content.to_vec());
            rest = behind;
        }
        Ok(Some(contents))
    }

    pub async fn diff(&self, from: &Sha, to: &Sha, caps: DiffLimits) -> Result<DiffText, Error> {
        let call =
            self.command("compare two commits").args(["diff-tree", "-r", "-p", "-M", "--full-index", "--no-color"]);
        let call = call.args(["--no-ext-diff", "--no-textconv", "--src-prefix=a/", "--dst-prefix=b/"]);
        let call = call.arg(format!("--unified={}", caps.context)).args([from.as_str(), to.as_str()]);
        let done = call.cap(caps.bytes, GitOverflow::Cut).run_checked().await?;
        Ok(DiffText { bytes: done.stdout, cut: done.cut })
    }

    pub async fn diffstat(&self, from: &Sha, to: &Sha) -> Result<DiffStat, Error> {
        Ok(DiffStat::of(self.compare(from, to, &["--raw", "--numstat"]).await?.1))
    }

    /// Lists changed files without reading them.
    pub async fn changed_paths(&self, from: &Sha, to: &Sha) -> Result<Vec<PathChange>, Error> {
        Ok(self.compare(from, to, &["--raw"]).await?.0)
    }

    async fn compare(
        &self,
        from: &Sha,
        to: &Sha,
        formats: &[&str],
    ) -> Result<(Vec<PathChange>, Vec<FileDiffStat>), Error> {
        const DOING: &str = "list changed files";
        let call = self.command(DOING).args(["diff-tree", "-r", "-z", "--no-renames", "--no-abbrev"]);
        let call = call.args(formats).args(["--no-ext-diff", "--no-textconv", from.as_str(), to.as_str()]);
        raw_diff::parse_diff(&call.run_checked().await?.stdout).ok_or(Error::UnexpectedOutput { doing: DOING })
    }

    /// Lists commits of `to` that are not of `from`, newest first.
    pub async fn log(&self, from: &Sha, to: &Sha, max: u32) -> Result<Vec<CommitLogEntry>, Error> {
        const DOING: &str = "list commits";
        let call =
            self.command(DOING).args(["log", "-z", "--no-color", "--no-ext-diff", "--no-textconv", "--no-patch"]);
        let call = call.arg("--format=%H%n%ct%n%an%n%s").arg(format!("--max-count={max}"));
        let done = call.args([to.as_str().to_owned(), format!("^{from}"), "--".to_owned()]).run_checked().await?;
        let records = done.stdout.split(|byte| *byte == 0).filter(|record| !record.is_empty());
        records.map(log_entry).collect::<Option<Vec<_>>>().ok_or(Error::UnexpectedOutput { doing: DOING })
    }

    pub async fn commit_count(&self, from: &Sha, to: &Sha) -> Result<u32, Error> {
        const DOING: &str = "count commits";
        let call = self.command(DOING).args(["rev-list", "--count", to.as_str()]).arg(format!("^{from}")).arg("--");
        call.text().await?.parse().map_err(|_| Error::UnexpectedOutput { doing: DOING })
    }

    /// Reports whether `old` is in the history of `new`; a commit that is not here is in no history.
    pub async fn is_ancestor(&self, old: &Sha, new: &Sha) -> Result<bool, Error> {
        let call = self.command("compare histories").args(["merge-base", "--is-ancestor", old.as_str(), new.as_str()]);
        Ok(call.run().await?.code == 0)
    }

    /// Attaches bytes to a commit under `refs/notes/ralph`, replacing an earlier note.
    pub async fn set_note(&self, sha: &Sha, bytes: &[u8], stamp: &CommitStamp) -> Result<(), Error> {
        let call = self.command("store a note").args(["hash-object", "-w", "--no-filters", "--stdin"]);
        let blob = Sha::parse(&call.bytes(bytes).text().await?)?;
        let call = self.command("attach a note").args(["notes", "--ref", NOTES_REF, "add", "--force", "-C"]);
        call.args([blob.as_str(), sha.as_str()]).envs(stamp.env()).run_checked().await?;
        Ok(())
    }

    /// Reads the note of a commit.
    pub async fn note_of(&self, sha: &Sha) -> Result<Option<Vec<u8>>, Error> {
        let call = self.command("find a note").args(["notes", "--ref", NOTES_REF, "list", sha.as_str()]);
        let done = call.run().await?;
        if done.code != 0 {
            return Ok(None);
        }
        let blob = Sha::parse(&done.text())?;
        let done = self.command("read a note").args(["cat-file", "blob", blob.as_str()]).run_checked().await?;
        Ok(Some(done.stdout))
    }

    /// Lists branches, local and remote, by their short names.
    pub async fn branches(&self) -> Result<Vec<String>, Error> {
        let call =
            self.command("list branches").args(["for-each-ref", "--format=%(refname)", "refs/heads", "refs/remotes"]);
        let text = call.text().await?;
        let short = |name: &str| {
            let local = name.strip_prefix("refs/heads/");
            local
                .or_else(|| name.strip_prefix("refs/remotes/")?.split_once('/').map(|(_, rest)| rest))
                .map(str::to_owned)
        };
        Ok(text.lines().filter_map(short).collect())
    }

    /// Returns the target of a full ref name.
    pub async fn ref_at(&self, name: &str) -> Result<Option<Sha>, Error> {
        let call = self.command("read a ref").args(["rev-parse", "--verify", "--quiet", "--end-of-options", name]);
        let done = call.run().await?;
        if done.code == 0 { Sha::parse(&done.text()).map(Some) } else { Ok(None) }
    }
}

fn tree_entry(record: &[u8]) -> Option<TreeEntry> {
    let tab = record.iter().position(|byte| *byte == b'\t')?;
    let (meta, path) = record.split_at_checked(tab)?;
    let mut parts = std::str::from_utf8(meta).ok()?.split(' ');
    let mode = u32::from_str_radix(parts.next()?, 8).ok()?;
    let sha = Sha::parse(parts.nth(1)?).ok()?;
    Some(TreeEntry { mode, sha, path: lossy(path.get(1..)?) })
}

fn log_entry(record: &[u8]) -> Option<CommitLogEntry> {
    let text = lossy(record);
    let mut lines = text.splitn(4, '\n');
    let sha = Sha::parse(lines.next()?).ok()?;
    // A commit may claim any time; an invalid one is shown as the epoch.
    let seconds = lines.next()?.parse().unwrap_or(0);
    let at = jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    Some(CommitLogEntry { sha, at, author: lines.next()?.to_owned(), subject: lines.next()?.trim_end().to_owned() })
}
