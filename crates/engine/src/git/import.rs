//! Imports a bundle file from the sandbox into one branch of the run's own repository, completely or not at all.
//!
//! Objects first go into a quarantine folder beside the repository, where git checks them strictly and ralph checks
//! every new commit; only then is the pack moved in and the branch set. A crash at any point leaves the repository as
//! it was or as it would be after a second import of the same file.

use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::time::Duration;

use globset::GlobSet;
use ralph_core::identifiers::TaskBranch;
use serde::{Deserialize, Serialize};

use super::bare_repo::iteration_ref_name;
use super::bundle::{self, HEADER_CAP};
use super::import_findings::ImportInspection;
use super::import_reader::ImportReader;
use super::object_quarantine::{MissingObject, ObjectQuarantine};
use super::{BareRepo, Error, ImportFinding, RunName, Sha};

/// Returns which secret-shaped text the bytes contain, if any.
pub type SecretScan<'a> = &'a (dyn Fn(&[u8]) -> Option<String> + Sync);

/// Limits on what an import may cost the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImportLimits {
    pub bundle_bytes: u64,
    pub objects: u32,
    pub commits: u32,
    /// Changed files, counted in each commit.
    pub changes: u32,
    /// Files above this size are findings and are not searched for secrets.
    pub large_file: u64,
    /// The total of all new file contents, unpacked, each counted once.
    pub unpacked_bytes: u64,
    pub findings: usize,
    /// The timeout of the whole check.
    pub time: Duration,
}

impl Default for ImportLimits {
    fn default() -> Self {
        Self {
            bundle_bytes: 256 << 20,
            objects: 200_000,
            commits: 5_000,
            changes: 200_000,
            large_file: 4 << 20,
            unpacked_bytes: 1 << 30,
            findings: 1_000,
            time: Duration::from_mins(2),
        }
    }
}

/// The outcome of an import.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "import", rename_all = "kebab-case")]
pub enum ImportOutcome {
    /// The branch now points to `sha`.
    Kept { sha: Sha, commits: u32, findings: Vec<ImportFinding> },
    /// Nothing of the bundle was kept.
    Refused { why: ImportRefusal, findings: Vec<ImportFinding> },
}

/// Why nothing was kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(tag = "refusal", rename_all = "kebab-case")]
pub enum ImportRefusal {
    #[error("the bundle is unusable: {why}")]
    Unreadable { why: String },
    #[error("the bundle offers `{name}`, which is not the branch of this run")]
    ForeignRef { name: String },
    #[error("the new commits are too large to be checked: {}", what.above(*limit))]
    TooLarge { what: ImportQuantity, limit: u64 },
    #[error("checking the new commits took longer than {seconds} seconds")]
    TooSlow { seconds: u64 },
    #[error("git in the sandbox took too long to pack the new commits")]
    SlowPack,
    #[error("git's own check of the objects failed: {said}")]
    Broken { said: String },
    #[error("the branch no longer contains the commit the run started from")]
    NotDescended,
    #[error("it contains what looks like a credential, or a path that some file systems treat as `.git`")]
    Stopped,
}

impl ImportRefusal {
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Stopped => Some("remove it from the branch's history in the sandbox, then resume the run".to_owned()),
            Self::NotDescended => Some("rebase the work onto the starting commit, or rewind the run".to_owned()),
            Self::TooLarge { .. } | Self::TooSlow { .. } | Self::SlowPack => Some(
                "have the files that need not be in the repository removed from the branch's history, or rewind the run"
                    .to_owned(),
            ),
            Self::Unreadable { .. } | Self::ForeignRef { .. } | Self::Broken { .. } => None,
        }
    }
}

/// What an import has a limit for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ImportQuantity {
    BundleBytes,
    Objects,
    Commits,
    CommitBytes,
    Changes,
    UnpackedBytes,
}

impl ImportQuantity {
    fn above(self, limit: u64) -> String {
        let mib = if limit < 1 << 20 { format!("{limit} bytes") } else { format!("{} MiB", limit >> 20) };
        match self {
            Self::BundleBytes => format!("packed, they have more than {mib}"),
            Self::Objects => format!("they have more than {limit} objects"),
            Self::Commits => format!("they are more than {limit}"),
            Self::CommitBytes => format!("their messages and lists of changed files have more than {mib}"),
            Self::Changes => format!("they change more than {limit} files, counted in each commit"),
            Self::UnpackedBytes => format!("the new contents of files have more than {mib}"),
        }
    }
}

/// The rules an import is checked against.
#[derive(Clone, Copy)]
pub struct ImportRules<'a> {
    pub branch: &'a TaskBranch,
    /// Commits reachable from this one are known; all others are checked.
    pub base: &'a Sha,
    /// The run and iteration whose ref is set in the same step as the branch.
    pub iteration_ref: Option<(&'a RunName, u32)>,
    pub protected: &'a GlobSet,
    pub secrets: SecretScan<'a>,
    pub limits: ImportLimits,
}

impl std::fmt::Debug for ImportRules<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ImportRules").field("branch", &self.branch).field("base", &self.base).finish_non_exhaustive()
    }
}

/// Objects that may become part of the repository.
struct CheckedImport<'a> {
    quarantine: ObjectQuarantine<'a>,
    sha: Sha,
    commits: u32,
    findings: Vec<ImportFinding>,
}

/// Either a refusal to return or an error to report.
pub(super) enum ImportFailure {
    Refused(ImportRefusal, Vec<ImportFinding>),
    Error(Error),
}

impl From<Error> for ImportFailure {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl From<MissingObject> for ImportFailure {
    fn from(MissingObject(said): MissingObject) -> Self {
        ImportRefusal::Broken { said }.into()
    }
}

impl From<ImportRefusal> for ImportFailure {
    fn from(refusal: ImportRefusal) -> Self {
        Self::Refused(refusal, Vec::new())
    }
}

impl BareRepo {
    /// Checks a bundle from the sandbox and, if nothing blocks it, points the run's branch to its commit.
    pub async fn import(&self, bundle: &Path, rules: ImportRules<'_>) -> Result<ImportOutcome, Error> {
        let checked = self.check(bundle, rules).await;
        self.keep(checked, rules).await
    }

    /// As [`Self::import`], but checks only until `aborted` is ready; `None` if that was first.
    pub async fn import_unless_aborted(
        &self,
        bundle: &Path,
        rules: ImportRules<'_>,
        aborted: impl Future<Output = ()>,
    ) -> Result<Option<ImportOutcome>, Error> {
        let checked = tokio::select! {
            biased;
            () = aborted => return Ok(None),
            checked = self.check(bundle, rules) => checked,
        };
        // What follows is short, and a git that is ended while it writes a ref would leave it locked.
        self.keep(checked, rules).await.map(Some)
    }

    async fn keep(
        &self,
        checked: Result<CheckedImport<'_>, ImportFailure>,
        rules: ImportRules<'_>,
    ) -> Result<ImportOutcome, Error> {
        let CheckedImport { quarantine, sha, commits, findings } = match checked {
            Ok(checked) => checked,
            Err(ImportFailure::Refused(why, findings)) => return Ok(ImportOutcome::Refused { why, findings }),
            Err(ImportFailure::Error(error)) => return Err(error),
        };
        quarantine.release()?;
        let shadow = rules.iteration_ref.map(|(run, n)| iteration_ref_name(run, n));
        let names: Vec<String> = shadow.into_iter().chain([rules.branch.ref_name()]).collect();
        self.set_refs(&names, &sha).await?;
        Ok(ImportOutcome::Kept { sha, commits, findings })
    }

    async fn check(&self, path: &Path, rules: ImportRules<'_>) -> Result<CheckedImport<'_>, ImportFailure> {
        let limit = rules.limits.time;
        match tokio::time::timeout(limit, self.check_untimed(path, rules)).await {
            Ok(checked) => checked,
            Err(_) => Err(ImportRefusal::TooSlow { seconds: limit.as_secs() }.into()),
        }
    }

    async fn check_untimed(&self, path: &Path, rules: ImportRules<'_>) -> Result<CheckedImport<'_>, ImportFailure> {
        let limits = rules.limits;
        let (pack, sha) = self.open_bundle(path, rules)?;
        // Longer than the whole check may take, so that it is always the check that is reported as too slow.
        let quarantine = ObjectQuarantine::new(self, limits.time.saturating_mul(2))?;
        let done = quarantine.index_pack(pack, limits.bundle_bytes).await?;
        if done.code != 0 {
            return Err(ImportRefusal::Broken { said: done.stderr_tail() }.into());
        }
        let reader = ImportReader { quarantine: &quarantine, limits, secrets: rules.secrets };
        let commits = reader.commits(&sha, rules.base).await?;
        if sha != *rules.base && !commits.iter().any(|commit| commit.sha == sha) {
            return Err(ImportRefusal::NotDescended.into());
        }
        // A path from the tip down to the base ends in a commit that has the base as its parent.
        let descended = sha == *rules.base || commits.iter().any(|commit| commit.parents.contains(rules.base));
        if !descended {
            return Err(ImportRefusal::NotDescended.into());
        }
        let mut names: Vec<&Sha> = commits.iter().map(|commit| &commit.sha).collect();
        names.dedup();
        let count = u32::try_from(names.len()).unwrap_or(u32::MAX);
        if count > limits.commits {
            return Err(too_large(ImportQuantity::Commits, limits.commits));
        }
        let texts = reader.commit_texts(&commits).await?;
        let blobs = reader.blobs(&commits).await?;
        let compared = reader.compare(&commits, &blobs).await?;
        let mut inspection = ImportInspection::new(
            &blobs,
            &compared,
            limits.large_file,
            rules.protected,
            rules.secrets,
            limits.findings,
        );
        for commit in &commits {
            if let Some(text) = texts.get(&commit.sha) {
                inspection.inspect_text(&commit.sha, text);
            }
            for changes in commit.changes.chunks(CHANGES_AT_ONCE) {
                for change in changes {
                    inspection.inspect_change(&commit.sha, change);
                }
                tokio::task::yield_now().await;
            }
        }
        let findings = inspection.finish();
        if findings.iter().any(|finding| finding.kind.is_blocking()) {
            return Err(ImportFailure::Refused(ImportRefusal::Stopped, findings));
        }
        Ok(CheckedImport { quarantine, sha, commits: count, findings })
    }

    /// Removes leftovers of killed processes. Only for the holder of the run's lock: no other process imports then.
    pub(crate) fn remove_leftovers(&self) {
        let ours = |entry: &std::fs::DirEntry| entry.file_name().to_string_lossy().starts_with("incoming-");
        for entry in std::fs::read_dir(self.path().join("objects")).into_iter().flatten().flatten().filter(ours) {
            // A leftover only costs space; the next resume tries again.
            let _ = std::fs::remove_dir_all(entry.path());
        }
        remove_locks(self.path());
    }

    /// Reads the header and leaves the file positioned at its pack.
    fn open_bundle(&self, path: &Path, rules: ImportRules<'_>) -> Result<(std::fs::File, Sha), ImportFailure> {
        let limits = rules.limits;
        let io = |doing| move |source| ImportFailure::Error(Error::Io { doing, path: path.to_owned(), source });
        let mut file = std::fs::File::open(path).map_err(io("open"))?;
        let size = file.metadata().map_err(io("open"))?.len();
        if size > limits.bundle_bytes {
            return Err(too_large(ImportQuantity::BundleBytes, limits.bundle_bytes));
        }
        let mut head = Vec::new();
        file.by_ref().take(HEADER_CAP as u64).read_to_end(&mut head).map_err(io("read"))?;
        let header = bundle::parse_header(&head, self.format)
            .map_err(|why| ImportRefusal::Unreadable { why: why.to_owned() })?;
        if header.objects > limits.objects {
            return Err(too_large(ImportQuantity::Objects, limits.objects));
        }
        let full = rules.branch.ref_name();
        let sha = match header.refs.as_slice() {
            [(sha, name)] if *name == full => sha.clone(),
            refs => {
                let foreign = refs.iter().map(|(_, name)| name.as_str()).find(|name| *name != full);
                let name = ralph_core::text::strip_control(ralph_core::text::head(foreign.unwrap_or("nothing"), 200));
                return Err(ImportRefusal::ForeignRef { name }.into());
            }
        };
        file.seek(SeekFrom::Start(header.pack_at)).map_err(io("read"))?;
        Ok((file, sha))
    }
}

/// Removes old locks below a folder; a recent one may belong to a git process that outlived its ralph and is about to
/// end.
fn remove_locks(folder: &Path) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(meta) = entry.metadata() else { continue };
        let path = entry.path();
        if meta.is_dir() && !path.ends_with("objects") {
            remove_locks(&path);
        } else if path.extension().is_some_and(|end| end == "lock")
            && meta.modified().is_ok_and(|at| at.elapsed().is_ok_and(|age| age > STALE_LOCK_AGE))
        {
            // A lock that stays makes the next git command report it.
            let _ = std::fs::remove_file(&path);
        }
    }
}

pub(super) fn too_large(what: ImportQuantity, limit: impl Into<u64>) -> ImportFailure {
    ImportRefusal::TooLarge { what, limit: limit.into() }.into()
}

/// How many changes are inspected before other tasks run.
const CHANGES_AT_ONCE: usize = 256;
const STALE_LOCK_AGE: Duration = Duration::from_mins(1);
