//! Reading commits, trees and files of a host repository by their names: no index, no work tree, no filters, no
//! external diff. Works on the user's repository and on a run's own alike.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::call::{Call, Over, Tool};
use super::names::tree_path;
use super::raw::{self, Change, FileStat, lossy};
use super::{Error, Sha, Stamp};

/// Where receipts are kept beside their commits.
const NOTES_REF: &str = "refs/notes/ralph";

/// The objects of one repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Odb {
    pub(crate) tool: Tool,
    pub(crate) git_dir: PathBuf,
}

/// How much of a diff is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    pub bytes: usize,
    pub context: u32,
}

impl Default for Caps {
    fn default() -> Self {
        Self { bytes: 1 << 20, context: 3 }
    }
}

/// A diff as text; `cut` when there was more of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Patch {
    pub bytes: Vec<u8>,
    pub cut: bool,
}

/// Changed files with their counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiffStat {
    pub files: Vec<FileStat>,
    pub added: u64,
    pub removed: u64,
}

impl DiffStat {
    pub(crate) fn of(files: Vec<FileStat>) -> Self {
        let sum = |count: fn(&FileStat) -> Option<u64>| files.iter().filter_map(count).fold(0, u64::saturating_add);
        Self { added: sum(|file| file.added), removed: sum(|file| file.removed), files }
    }
}

/// One commit in a listing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogEntry {
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

impl Odb {
    pub fn git_dir(&self) -> &Path {
        &self.git_dir
    }

    pub(crate) fn call(&self, doing: &'static str) -> Call<'_> {
        self.tool.call(doing).git_dir(&self.git_dir)
    }

    /// Returns the commit a name stands for.
    pub async fn commit(&self, name: &str) -> Result<Option<Sha>, Error> {
        let call = self.call("resolve a name").args(["rev-parse", "--verify", "--quiet", "--end-of-options"]);
        let done = call.arg(format!("{name}^{{commit}}")).run().await?;
        if done.code == 0 { Sha::parse(&done.text()).map(Some) } else { Ok(None) }
    }

    pub async fn tree_of(&self, commit: &Sha) -> Result<Sha, Error> {
        let call = self.call("find a tree").args(["rev-parse", "--verify", "--quiet", "--end-of-options"]);
        let done = call.arg(format!("{commit}^{{tree}}")).run().await?;
        if done.code == 0 { Sha::parse(&done.text()) } else { Err(Error::NoCommit { name: commit.to_string() }) }
    }

    /// Lists every file of a commit.
    pub async fn files_at(&self, commit: &Sha) -> Result<Vec<TreeEntry>, Error> {
        const DOING: &str = "list the files of a commit";
        let done = self.call(DOING).args(["ls-tree", "-r", "-z", "--full-tree", commit.as_str()]).ok().await?;
        let entries = done.stdout.split(|byte| *byte == 0).filter(|record| !record.is_empty()).map(entry);
        entries.collect::<Option<Vec<_>>>().ok_or(Error::Odd { doing: DOING })
    }

    /// Reads a file of a commit as it is stored, without conversion.
    pub async fn file_at(&self, commit: &Sha, path: &str, cap: usize) -> Result<Vec<u8>, Error> {
        let path = tree_path(path)?;
        let call = self.call("read a file of a commit").args(["cat-file", "blob"]);
        let done = call.arg(format!("{commit}:{path}")).cap(cap, Over::Fail).run().await?;
        if done.code == 0 {
            return Ok(done.stdout);
        }
        Err(Error::NoFile { sha: commit.to_string(), path: path.to_owned() })
    }

    pub async fn diff(&self, from: &Sha, to: &Sha, caps: Caps) -> Result<Patch, Error> {
        let call = self.call("compare two commits").args(["diff-tree", "-r", "-p", "-M", "--full-index", "--no-color"]);
        let call = call.args(["--no-ext-diff", "--no-textconv", "--src-prefix=a/", "--dst-prefix=b/"]);
        let call = call.arg(format!("--unified={}", caps.context)).args([from.as_str(), to.as_str()]);
        let done = call.cap(caps.bytes, Over::Cut).ok().await?;
        Ok(Patch { bytes: done.stdout, cut: done.cut })
    }

    pub async fn diffstat(&self, from: &Sha, to: &Sha) -> Result<DiffStat, Error> {
        Ok(DiffStat::of(self.compare(from, to).await?.1))
    }

    pub async fn changed_paths(&self, from: &Sha, to: &Sha) -> Result<Vec<Change>, Error> {
        Ok(self.compare(from, to).await?.0)
    }

    async fn compare(&self, from: &Sha, to: &Sha) -> Result<(Vec<Change>, Vec<FileStat>), Error> {
        const DOING: &str = "list changed files";
        let call =
            self.call(DOING).args(["diff-tree", "-r", "-z", "--raw", "--numstat", "--no-renames", "--no-abbrev"]);
        let call = call.args(["--no-ext-diff", "--no-textconv", from.as_str(), to.as_str()]);
        raw::changes(&call.ok().await?.stdout).ok_or(Error::Odd { doing: DOING })
    }

    /// Lists commits of `to` that are not of `from`, newest first.
    pub async fn log(&self, from: &Sha, to: &Sha, max: u32) -> Result<Vec<LogEntry>, Error> {
        const DOING: &str = "list commits";
        let call = self.call(DOING).args(["log", "-z", "--no-color", "--no-ext-diff", "--no-textconv", "--no-patch"]);
        let call = call.arg("--format=%H%n%ct%n%an%n%s").arg(format!("--max-count={max}"));
        let done = call.args([to.as_str().to_owned(), format!("^{from}"), "--".to_owned()]).ok().await?;
        let records = done.stdout.split(|byte| *byte == 0).filter(|record| !record.is_empty());
        records.map(log_entry).collect::<Option<Vec<_>>>().ok_or(Error::Odd { doing: DOING })
    }

    pub async fn commit_count(&self, from: &Sha, to: &Sha) -> Result<u32, Error> {
        const DOING: &str = "count commits";
        let call = self.call(DOING).args(["rev-list", "--count", to.as_str()]).arg(format!("^{from}")).arg("--");
        call.text().await?.parse().map_err(|_| Error::Odd { doing: DOING })
    }

    /// True when `old` is in the history of `new`; a commit that is not here is in no history.
    pub async fn is_ancestor(&self, old: &Sha, new: &Sha) -> Result<bool, Error> {
        let call = self.call("compare histories").args(["merge-base", "--is-ancestor", old.as_str(), new.as_str()]);
        Ok(call.run().await?.code == 0)
    }

    /// Attaches bytes to a commit under `refs/notes/ralph`, in place of what was there.
    pub async fn note(&self, sha: &Sha, bytes: &[u8], stamp: &Stamp) -> Result<(), Error> {
        let call = self.call("store a note").args(["hash-object", "-w", "--no-filters", "--stdin"]);
        let blob = Sha::parse(&call.bytes(bytes).text().await?)?;
        let call = self.call("attach a note").args(["notes", "--ref", NOTES_REF, "add", "--force", "-C"]);
        call.args([blob.as_str(), sha.as_str()]).envs(stamp.env()).ok().await?;
        Ok(())
    }

    /// Reads the note of a commit.
    pub async fn note_of(&self, sha: &Sha) -> Result<Option<Vec<u8>>, Error> {
        let call = self.call("find a note").args(["notes", "--ref", NOTES_REF, "list", sha.as_str()]);
        let done = call.run().await?;
        if done.code != 0 {
            return Ok(None);
        }
        let blob = Sha::parse(&done.text())?;
        let done = self.call("read a note").args(["cat-file", "blob", blob.as_str()]).ok().await?;
        Ok(Some(done.stdout))
    }

    /// Lists branches, local and remote, by the names people use.
    pub async fn branches(&self) -> Result<Vec<String>, Error> {
        let call =
            self.call("list branches").args(["for-each-ref", "--format=%(refname)", "refs/heads", "refs/remotes"]);
        let text = call.text().await?;
        let short = |name: &str| {
            let local = name.strip_prefix("refs/heads/");
            local
                .or_else(|| name.strip_prefix("refs/remotes/")?.split_once('/').map(|(_, rest)| rest))
                .map(str::to_owned)
        };
        Ok(text.lines().filter_map(short).collect())
    }

    /// Returns what a full ref name points to.
    pub async fn ref_at(&self, name: &str) -> Result<Option<Sha>, Error> {
        let call = self.call("read a ref").args(["rev-parse", "--verify", "--quiet", "--end-of-options", name]);
        let done = call.run().await?;
        if done.code == 0 { Sha::parse(&done.text()).map(Some) } else { Ok(None) }
    }
}

fn entry(record: &[u8]) -> Option<TreeEntry> {
    let tab = record.iter().position(|byte| *byte == b'\t')?;
    let (meta, path) = record.split_at_checked(tab)?;
    let mut parts = std::str::from_utf8(meta).ok()?.split(' ');
    let mode = u32::from_str_radix(parts.next()?, 8).ok()?;
    let sha = Sha::parse(parts.nth(1)?).ok()?;
    Some(TreeEntry { mode, sha, path: lossy(path.get(1..)?) })
}

fn log_entry(record: &[u8]) -> Option<LogEntry> {
    let text = lossy(record);
    let mut lines = text.splitn(4, '\n');
    let sha = Sha::parse(lines.next()?).ok()?;
    // A commit may claim any time at all; one that is no time is shown as the epoch.
    let seconds = lines.next()?.parse().unwrap_or(0);
    let at = jiff::Timestamp::from_second(seconds).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    Some(LogEntry { sha, at, author: lines.next()?.to_owned(), subject: lines.next()?.trim_end().to_owned() })
}
