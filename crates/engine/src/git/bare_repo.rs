//! Manages the host-owned bare repository of a run: everything that goes into the sandbox or comes out of it passes
//! through it.
//!
//! It is created from nothing, has no remotes and no settings of anyone else, and no sandbox can write to it. Checking
//! what comes out is in `import`, sending it on in `publish`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ralph_core::identifiers::TaskBranch;

use super::commit_message::{CommitStamp, CommitTrailer, compose_message};
use super::raw_diff::terminated_list;
use super::subprocess::{GitCommand, GitProgram, quoted_alternate};
use super::validated_names::tree_path;
use super::{Error, ObjectDb, ObjectFormat, RunName, Sha, UserRepo};

/// `<run folder>/repo.git`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BareRepo {
    pub(crate) odb: ObjectDb,
    pub(crate) format: ObjectFormat,
}

/// Whole histories are written once; large ones take time.
const HISTORY_TIMEOUT: Duration = Duration::from_mins(20);
const BASE_REF: &str = "refs/ralph/base";

impl BareRepo {
    /// Opens the repository at `path`, creating it if missing; a half-created one is completed.
    pub async fn create(tool: &GitProgram, path: &Path, format: ObjectFormat) -> Result<Self, Error> {
        let odb = ObjectDb { tool: tool.clone(), git_dir: path.to_owned() };
        let call = tool.command("make a repository").args(["init", "--quiet", "--bare", "--template="]);
        let call = call.arg(format!("--object-format={}", format.name())).arg("--initial-branch=ralph/none");
        call.arg("--").arg(path).run_checked().await?;
        Ok(Self { odb, format })
    }

    /// Opens an existing repository.
    pub async fn open(tool: &GitProgram, path: &Path) -> Result<Self, Error> {
        let odb = ObjectDb { tool: tool.clone(), git_dir: path.to_owned() };
        let done = odb.command("open a repository").args(["rev-parse", "--show-object-format"]).run().await?;
        let format = ObjectFormat::parse(&done.text()).filter(|_| done.code == 0);
        let format = format.ok_or_else(|| Error::NotARepository { path: path.to_owned() })?;
        Ok(Self { odb, format })
    }

    pub fn path(&self) -> &Path {
        &self.odb.git_dir
    }

    pub fn odb(&self) -> &ObjectDb {
        &self.odb
    }

    pub(crate) fn command(&self, doing: &'static str) -> GitCommand<'_> {
        self.odb.command(doing)
    }

    /// Copies the history of one commit out of the user's repository.
    ///
    /// The user's objects are read as a second object store, so that neither its config nor its hooks are ever read.
    pub async fn seed_from(&self, user: &UserRepo, base: &Sha) -> Result<(), Error> {
        if self.odb.ref_at(BASE_REF).await?.as_ref() == Some(base) {
            return Ok(());
        }
        if user.shallow {
            self.copy_shallow(&user.common)?;
        }
        let objects = user.common.join("objects");
        let call =
            self.command("copy the base commit").env("GIT_ALTERNATE_OBJECT_DIRECTORIES", quoted_alternate(&objects));
        let call = call.args(["pack-objects", "--quiet", "--revs", "--delta-base-offset"]);
        let call = call.arg(self.path().join("objects/pack/pack")).bytes(format!("{base}\n"));
        call.timeout(HISTORY_TIMEOUT).run_checked().await?;
        self.set_ref(BASE_REF, base).await
    }

    /// Copies the file in which a shallow clone records where its history ends; without it the missing parents would
    /// be errors.
    fn copy_shallow(&self, common: &Path) -> Result<(), Error> {
        let (from, to) = (common.join("shallow"), self.path().join("shallow"));
        let text = std::fs::read_to_string(&from).map_err(|source| Error::Io { doing: "read", path: from, source })?;
        let ends = text.lines().map(Sha::parse).collect::<Result<Vec<_>, _>>()?;
        let text = terminated_list(ends.iter().map(Sha::as_str), '\n');
        std::fs::write(&to, text).map_err(|source| Error::Io { doing: "write", path: to, source })
    }

    /// Returns where the history ends, if the user's clone is shallow.
    pub fn shallow(&self) -> Result<Option<Vec<u8>>, Error> {
        let path = self.path().join("shallow");
        match std::fs::read(&path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(Error::Io { doing: "read", path, source }),
        }
    }

    /// Creates the commit that adds the task file to the base; returns the base itself if it already has the same
    /// bytes.
    pub async fn commit_task_file(
        &self,
        base: &Sha,
        path: &str,
        bytes: &[u8],
        stamp: &CommitStamp,
        trailers: &[CommitTrailer],
    ) -> Result<Sha, Error> {
        let path = tree_path(path)?;
        let call = self.command("store the task file").args(["hash-object", "-w", "--no-filters", "--stdin"]);
        let blob = Sha::parse(&call.bytes(bytes).text().await?)?;
        let edits = [GitTreeEdit { path: path.to_owned(), entry: Some((0o100_644, blob)) }];
        self.commit_edits(base, &edits, &format!("ralph: add {path}"), stamp, trailers).await
    }

    /// Commits edits on top of a commit using plumbing only; returns the parent if they change nothing.
    pub(crate) async fn commit_edits(
        &self,
        parent: &Sha,
        edits: &[GitTreeEdit],
        message: &str,
        stamp: &CommitStamp,
        trailers: &[CommitTrailer],
    ) -> Result<Sha, Error> {
        let index = TempIndex::new(self.path());
        let call = |doing| self.command(doing).env("GIT_INDEX_FILE", &index.0);
        call("read the base tree").args(["read-tree", parent.as_str()]).run_checked().await?;
        let mut info = Vec::new();
        for GitTreeEdit { path, entry } in edits {
            // Removed first, so that a file can replace a folder and the other way round.
            let null = "0".repeat(parent.as_str().len());
            info.extend(format!("0 {null}\t{path}\0").into_bytes());
            if let Some((mode, sha)) = entry {
                info.extend(format!("{mode:o} {sha}\t{path}\0").into_bytes());
            }
        }
        call("stage files")
            .args(["update-index", "--add", "--replace", "-z", "--index-info"])
            .bytes(info)
            .run_checked()
            .await?;
        let tree = Sha::parse(&call("write a tree").arg("write-tree").text().await?)?;
        if tree == self.odb.tree_of(parent).await? {
            return Ok(parent.clone());
        }
        let call =
            self.command("write a commit").args(["commit-tree", "-p", parent.as_str(), "-F", "-", tree.as_str()]);
        Sha::parse(&call.envs(stamp.env()).bytes(compose_message(message, trailers)).text().await?)
    }

    /// Points the run's branch to a commit: done once before the sandbox is seeded, later only by an import.
    pub async fn set_branch(&self, branch: &TaskBranch, sha: &Sha) -> Result<(), Error> {
        self.set_ref(&branch.ref_name(), sha).await
    }

    /// Writes the branch with its whole history into a bundle file.
    pub async fn write_bundle(&self, path: &Path, branch: &TaskBranch) -> Result<(), Error> {
        let call =
            self.command("write a bundle").args(["bundle", "create", "--quiet"]).arg(path).arg(branch.ref_name());
        call.timeout(HISTORY_TIMEOUT).run_checked().await?;
        Ok(())
    }

    /// Stores the state of an iteration as `refs/ralph/<run>/<n>`.
    pub async fn set_iteration_ref(&self, run: &RunName, n: u32, sha: &Sha) -> Result<(), Error> {
        self.set_ref(&iteration_ref_name(run, n), sha).await
    }

    /// Returns the stored state of an iteration.
    pub async fn iteration_commit(&self, run: &RunName, n: u32) -> Result<Option<Sha>, Error> {
        self.odb.ref_at(&iteration_ref_name(run, n)).await
    }

    pub(crate) async fn set_ref(&self, name: &str, sha: &Sha) -> Result<(), Error> {
        self.set_refs(&[name.to_owned()], sha).await
    }

    /// Points several refs to one commit, all or none.
    pub(crate) async fn set_refs(&self, names: &[String], sha: &Sha) -> Result<(), Error> {
        let lines = names.iter().fold(String::new(), |text, name| text + "update " + name + " " + sha.as_str() + "\n");
        self.command("write a ref").args(["update-ref", "--no-deref", "--stdin"]).bytes(lines).run_checked().await?;
        Ok(())
    }
}

pub(crate) fn iteration_ref_name(run: &RunName, n: u32) -> String {
    format!("refs/ralph/{run}/{n}")
}

/// One path to set or, without an entry, to remove.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GitTreeEdit {
    pub(crate) path: String,
    pub(crate) entry: Option<(u32, Sha)>,
}

/// A temporary index file, removed on drop.
#[derive(Debug)]
struct TempIndex(PathBuf);

impl TempIndex {
    fn new(folder: &Path) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        Self(folder.join(format!("ralph-index-{}-{n}", std::process::id())))
    }
}

impl Drop for TempIndex {
    fn drop(&mut self) {
        // A leftover file only costs space.
        let _ = std::fs::remove_file(&self.0);
    }
}
