//! Holds the files that decide about the work to the bytes of the start commit while a check runs.
//!
//! A file that differs before the check is put back. A file that anything writes to during the check makes the check
//! fail, even if its content is put back in time: its stamp shows the write. Not noticed: a folder above it that is
//! renamed and renamed back while the check runs, and files beyond the limits below.

use std::path::PathBuf;

use globset::GlobSet;
use ralph_core::event::RunStart;
use ralph_core::hash::sha256;
use ralph_sandbox::{FileStamp, Sandbox};

use crate::error::Error;
use crate::git::{self, BareRepo, ObjectDb, Sha, in_sandbox};

/// The largest file whose content is compared; for a larger one git's own comparison decides before a check.
const FILE_CAP: usize = 4 << 20;

/// How many files are compared by content before a check; for the others git's own comparison decides.
const MAX_COMPARED: usize = 500;

/// How many files are watched for writes during a check.
const MAX_WATCHED: usize = 20_000;

/// One file of the start commit.
#[derive(Debug)]
pub(crate) struct HeldFile {
    pub(crate) path: String,
    /// `None` where only writes during a check are noticed.
    pub(crate) sha256: Option<String>,
    mode: u32,
}

/// The files that the run may not change.
#[derive(Debug)]
pub(crate) struct HeldFiles {
    pub(crate) globs: GlobSet,
    pub(crate) files: Vec<HeldFile>,
    /// Where their content is, unless there are none.
    source: Option<(ObjectDb, Sha)>,
}

/// The stamps of the held files before a check.
#[derive(Debug)]
pub(crate) struct HeldStamps(Vec<Option<FileStamp>>);

impl HeldFiles {
    /// Holds no file: a receipt does not say which files its checks were held to.
    pub(crate) fn none() -> Self {
        Self { globs: GlobSet::empty(), files: Vec::new(), source: None }
    }

    /// Finds the files in the run's own repository on the host.
    pub(crate) async fn load(bare: &BareRepo, started: &RunStart) -> Result<Self, Error> {
        let globs = git::globs(started.protected_paths.iter().chain(&started.proof_files));
        let (odb, start) = (bare.odb(), Sha::from(&started.start_commit));
        let mut files = Vec::new();
        for entry in odb.files_at(&start).await? {
            let plain = entry.mode & 0o170_000 == 0o100_000;
            if !plain || entry.path == started.task_path || !globs.is_match(&entry.path) || files.len() == MAX_WATCHED {
                continue;
            }
            let sha256 = if files.len() < MAX_COMPARED {
                match odb.file_at(&start, &entry.path, FILE_CAP).await {
                    Ok(bytes) => Some(sha256(&bytes)),
                    Err(git::Error::TooMuchOutput { .. }) => None,
                    Err(error) => return Err(error.into()),
                }
            } else {
                None
            };
            files.push(HeldFile { path: entry.path, sha256, mode: entry.mode & 0o777 });
        }
        Ok(Self { globs, files, source: Some((odb.clone(), start)) })
    }

    /// Puts back what differs from the start commit, and returns the stamps by which later writes are noticed. No
    /// process of the sandbox may run meanwhile.
    pub(crate) async fn restore(&self, sandbox: &dyn Sandbox) -> Result<HeldStamps, Error> {
        for file in &self.files {
            let (Some(want), Some((odb, start))) = (&file.sha256, &self.source) else { continue };
            let path = PathBuf::from(&file.path);
            let found = sandbox.read(&path, FILE_CAP as u64).await.ok();
            if found.as_deref().map(sha256).as_ref() != Some(want) {
                let bytes = odb.file_at(start, &file.path, FILE_CAP).await?;
                in_sandbox::remove_non_file(sandbox, &file.path).await?;
                sandbox.write(&path, &bytes, Some(file.mode)).await?;
            }
        }
        Ok(HeldStamps(self.stamps(sandbox).await?))
    }

    /// Returns the files that were written to since the stamps were taken.
    pub(crate) async fn changed_since(&self, sandbox: &dyn Sandbox, before: &HeldStamps) -> Result<Vec<String>, Error> {
        let now = self.stamps(sandbox).await?;
        let differs = |(file, (then, now)): (&HeldFile, (&Option<FileStamp>, &Option<FileStamp>))| {
            (then.is_none() || then != now).then(|| file.path.clone())
        };
        Ok(self.files.iter().zip(before.0.iter().zip(&now)).filter_map(differs).collect())
    }

    async fn stamps(&self, sandbox: &dyn Sandbox) -> Result<Vec<Option<FileStamp>>, Error> {
        let paths: Vec<PathBuf> = self.files.iter().map(|file| PathBuf::from(&file.path)).collect();
        Ok(sandbox.stamps(&paths).await?)
    }
}
