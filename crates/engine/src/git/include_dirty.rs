//! Implements `--include-dirty`: commits the tracked changes of the user's checkout as one commit of the run.
//!
//! Files are stored as git would store them (line ends, encodings), but no filter program is started: a file that
//! attributes send through one (git-lfs for example) is left out and reported. Untracked files are never included.

use std::os::unix::fs::PermissionsExt as _;

use super::bare_repo::GitTreeEdit;
use super::commit_message::{CommitStamp, CommitTrailer};
use super::raw_diff::{SYMLINK_MODE, lossy, terminated_list};
use super::user_repo::StatusEntryKind;
use super::{BareRepo, Error, Sha, UserRepo};

/// The commit with the changes, and what it leaves out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirtyCommit {
    pub sha: Sha,
    pub included: Vec<String>,
    pub skipped: Vec<SkippedDirtyFile>,
}

/// A changed file that was left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SkippedDirtyFile {
    pub path: String,
    pub why: &'static str,
}

/// Larger files do not become part of a run by accident.
const FILE_CAP: u64 = 100 << 20;

impl BareRepo {
    /// Commits the user's uncommitted tracked changes, other than the task file, on top of a commit.
    pub async fn include_dirty(
        &self,
        user: &UserRepo,
        parent: &Sha,
        task: &str,
        stamp: &CommitStamp,
        trailers: &[CommitTrailer],
    ) -> Result<DirtyCommit, Error> {
        let status = user.status().await?;
        let mut skipped = Vec::new();
        let mut edits = Vec::new();
        let mut files = Vec::new();
        for entry in status.entries {
            let StatusEntryKind::Tracked { submodule, conflict } = entry.kind else { continue };
            let path = entry.path;
            if path == task {
                continue;
            }
            match inspect_path(user, &path, submodule, conflict) {
                DirtyPath::File { mode } => files.push((path, mode)),
                DirtyPath::Link { target } => {
                    let call = self.command("store a link").args(["hash-object", "-w", "--no-filters", "--stdin"]);
                    let sha = Sha::parse(&call.bytes(target).text().await?)?;
                    edits.push(GitTreeEdit { path, entry: Some((SYMLINK_MODE, sha)) });
                }
                DirtyPath::Missing => edits.push(GitTreeEdit { path, entry: None }),
                DirtyPath::Unsupported(why) => skipped.push(SkippedDirtyFile { path, why }),
            }
        }
        let filtered = filtered_paths(user, &files).await?;
        let (out, files): (Vec<_>, Vec<_>) = files.into_iter().partition(|(path, _)| filtered.contains(path));
        skipped.extend(
            out.into_iter().map(|(path, _)| SkippedDirtyFile { path, why: "a filter program would have to read it" }),
        );
        edits.extend(self.store_files(user, &files).await?);
        let taken = edits.iter().map(|edit| edit.path.clone()).collect();
        let message = "ralph: include uncommitted changes";
        let sha = self.commit_edits(parent, &edits, message, stamp, trailers).await?;
        Ok(DirtyCommit { sha, included: taken, skipped })
    }

    /// Stores files of the user's work tree in one call; their attributes decide line ends, and no filter runs.
    async fn store_files(&self, user: &UserRepo, files: &[(String, u32)]) -> Result<Vec<GitTreeEdit>, Error> {
        const DOING: &str = "store uncommitted files";
        if files.is_empty() {
            return Ok(Vec::new());
        }
        let paths = terminated_list(files.iter().map(|(path, _)| path.as_str()), '\n');
        let call = user.without_filters(user.odb.command(DOING)).current_dir(&user.top).env("GIT_WORK_TREE", &user.top);
        let call = call.env("GIT_OBJECT_DIRECTORY", self.path().join("objects"));
        let text = call.args(["hash-object", "-w", "--stdin-paths"]).bytes(paths).text().await?;
        let shas = text.lines().map(Sha::parse).collect::<Result<Vec<_>, _>>()?;
        if shas.len() != files.len() {
            return Err(Error::UnexpectedOutput { doing: DOING });
        }
        let edit =
            |((path, mode), sha): (&(String, u32), Sha)| GitTreeEdit { path: path.clone(), entry: Some((*mode, sha)) };
        Ok(files.iter().zip(shas).map(edit).collect())
    }
}

enum DirtyPath {
    File { mode: u32 },
    Link { target: Vec<u8> },
    Missing,
    Unsupported(&'static str),
}

fn inspect_path(user: &UserRepo, path: &str, submodule: bool, conflict: bool) -> DirtyPath {
    use std::os::unix::ffi::OsStrExt as _;
    if submodule {
        return DirtyPath::Unsupported("it is a submodule");
    }
    if conflict {
        return DirtyPath::Unsupported("it has merge conflicts");
    }
    if path.contains('\n') || path.contains('\u{fffd}') {
        return DirtyPath::Unsupported("its name is not plain text");
    }
    let full = user.top.join(path);
    let Ok(meta) = std::fs::symlink_metadata(&full) else { return DirtyPath::Missing };
    if meta.is_symlink() {
        return match std::fs::read_link(&full) {
            Ok(target) => DirtyPath::Link { target: target.as_os_str().as_bytes().to_vec() },
            Err(_) => DirtyPath::Unsupported("the link could not be read"),
        };
    }
    if meta.is_dir() {
        return DirtyPath::Missing;
    }
    if !meta.is_file() {
        return DirtyPath::Unsupported("it is not a regular file");
    }
    if meta.len() > FILE_CAP {
        return DirtyPath::Unsupported("it is larger than 100 MiB");
    }
    DirtyPath::File { mode: if meta.permissions().mode() & 0o111 == 0 { 0o100_644 } else { 0o100_755 } }
}

/// Returns the paths whose attributes name a filter.
async fn filtered_paths(user: &UserRepo, files: &[(String, u32)]) -> Result<Vec<String>, Error> {
    const DOING: &str = "read attributes";
    if files.is_empty() {
        return Ok(Vec::new());
    }
    let paths = terminated_list(files.iter().map(|(path, _)| path.as_str()), '\0');
    let call = user.odb.command(DOING).current_dir(&user.top).env("GIT_WORK_TREE", &user.top);
    let done = call.args(["check-attr", "-z", "--stdin", "filter"]).bytes(paths).run_checked().await?;
    let fields: Vec<&[u8]> = done.stdout.split(|byte| *byte == 0).collect();
    let named = fields.chunks_exact(3).filter_map(|record| match record {
        [path, _, value] if *value != b"unspecified" && *value != b"unset" => Some(lossy(path)),
        _ => None,
    });
    Ok(named.collect())
}
