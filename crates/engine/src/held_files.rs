//! Holds the files that decide about the work to the bytes of the start commit while a check runs.
//!
//! A file that differs before the check is put back. A file that anything writes to during the check makes the check
//! fail, even if it is put back in time: its stamp shows the write.

use std::path::PathBuf;

use globset::GlobSet;
use ralph_core::event::RunStart;
use ralph_core::hash::sha256;
use ralph_sandbox::{FileStamp, Sandbox};

use crate::error::Error;
use crate::git::{self, BareRepo, Sha, in_sandbox};

/// The largest file that is held; for a larger one git's own comparison decides.
const FILE_CAP: usize = 4 << 20;

/// How many files are held; for the others git's own comparison decides.
const MAX_FILES: usize = 5_000;

/// One file of the start commit.
#[derive(Debug)]
pub(crate) struct HeldFile {
    pub(crate) path: String,
    pub(crate) sha256: String,
    bytes: Vec<u8>,
    mode: u32,
}

/// The files that the run may not change.
#[derive(Debug)]
pub(crate) struct HeldFiles {
    pub(crate) globs: GlobSet,
    pub(crate) files: Vec<HeldFile>,
}

/// The stamps of the held files before a check.
#[derive(Debug)]
pub(crate) struct HeldStamps(Vec<Option<FileStamp>>);

impl HeldFiles {
    /// Holds no file: a receipt does not say which files its checks were held to.
    pub(crate) fn none() -> Self {
        Self { globs: GlobSet::empty(), files: Vec::new() }
    }

    /// Reads the files from the run's own repository on the host.
    pub(crate) async fn load(bare: &BareRepo, started: &RunStart) -> Result<Self, Error> {
        let globs = git::globs(started.protected_paths.iter().chain(&started.proof_files));
        let start = Sha::from(&started.start_commit);
        let mut files = Vec::new();
        for entry in bare.odb().files_at(&start).await? {
            let plain = entry.mode & 0o170_000 == 0o100_000;
            if !plain || entry.path == started.task_path || !globs.is_match(&entry.path) || files.len() == MAX_FILES {
                continue;
            }
            if let Ok(bytes) = bare.odb().file_at(&start, &entry.path, FILE_CAP).await {
                let mode = entry.mode & 0o777;
                files.push(HeldFile { sha256: sha256(&bytes), path: entry.path, bytes, mode });
            }
        }
        Ok(Self { globs, files })
    }

    /// Puts back what differs from the start commit, and returns the stamps by which later writes are noticed. No
    /// process of the sandbox may run meanwhile.
    pub(crate) async fn restore(&self, sandbox: &dyn Sandbox) -> Result<HeldStamps, Error> {
        for file in &self.files {
            let path = PathBuf::from(&file.path);
            let found = sandbox.read(&path, FILE_CAP as u64).await.ok();
            if found.as_deref() != Some(&file.bytes) {
                in_sandbox::remove_non_file(sandbox, &file.path).await?;
                sandbox.write(&path, &file.bytes, Some(file.mode)).await?;
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
