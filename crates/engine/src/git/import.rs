//! Imports a bundle file from the sandbox into one branch of the run's own repository, completely or not at all.
//!
//! Objects first go into a quarantine folder beside the repository, where git checks them strictly and ralph checks
//! every new commit; only then is the pack moved in and the branch set. A crash at any point leaves the repository as
//! it was or as it would be after a second import of the same file.

use std::collections::{BTreeSet, HashMap};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::Duration;

use globset::GlobSet;
use ralph_core::identifiers::TaskBranch;
use serde::{Deserialize, Serialize};

use super::bare_repo::iteration_ref_name;
use super::bundle::{self, HEADER_CAP};
use super::import_findings::{self, ImportedBlobs};
use super::raw_diff::{self, CommitChanges, GITLINK_MODE};
use super::subprocess::{GitCommand, GitInput, GitOverflow, quoted_alternate};
use super::{BareRepo, Error, ImportFinding, RunName, Sha};

/// Returns which secret-shaped text the bytes contain, if any.
pub type SecretScan<'a> = &'a (dyn Fn(&[u8]) -> Option<String> + Sync);

/// Limits on what an import may cost the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImportLimits {
    pub bundle_bytes: u64,
    pub objects: u32,
    pub commits: u32,
    /// Files above this size are findings and are not searched for secrets.
    pub large_file: u64,
    /// The total of all new file contents, unpacked.
    pub unpacked_bytes: u64,
    pub findings: usize,
    /// The timeout of each step.
    pub time: Duration,
}

impl Default for ImportLimits {
    fn default() -> Self {
        Self {
            bundle_bytes: 256 << 20,
            objects: 200_000,
            commits: 5_000,
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
    #[error("the {what} of the bundle is over the limit of {limit}")]
    TooLarge { what: String, limit: u64 },
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
            Self::Unreadable { .. } | Self::ForeignRef { .. } | Self::TooLarge { .. } | Self::Broken { .. } => None,
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

/// Either a refusal to return or an error to report.
enum ImportFailure {
    Refused(ImportRefusal, Vec<ImportFinding>),
    Error(Error),
}

impl From<Error> for ImportFailure {
    fn from(error: Error) -> Self {
        Self::Error(error)
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
        match self.try_import(bundle, rules).await {
            Ok((sha, commits, findings)) => Ok(ImportOutcome::Kept { sha, commits, findings }),
            Err(ImportFailure::Refused(why, findings)) => Ok(ImportOutcome::Refused { why, findings }),
            Err(ImportFailure::Error(error)) => Err(error),
        }
    }

    async fn try_import(
        &self,
        path: &Path,
        rules: ImportRules<'_>,
    ) -> Result<(Sha, u32, Vec<ImportFinding>), ImportFailure> {
        let limits = rules.limits;
        let (pack, sha) = self.open_bundle(path, rules)?;
        let quarantine = ObjectQuarantine::new(self)?;
        let call =
            quarantine.command("check the imported objects").args(["index-pack", "--stdin", "--fix-thin", "--strict"]);
        let call = call
            .args(["--threads=1", "--no-rev-index"])
            .arg(format!("--max-input-size={}", limits.bundle_bytes))
            .input(GitInput::File(pack));
        let done = call.timeout(limits.time).cap(1 << 20, GitOverflow::Fail).run().await?;
        if done.code != 0 {
            return Err(ImportRefusal::Broken { said: done.stderr_tail() }.into());
        }
        let commits = quarantine.commits(&sha, rules).await?;
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
            return Err(
                ImportRefusal::TooLarge { what: "number of commits".to_owned(), limit: limits.commits.into() }.into()
            );
        }
        let blobs = quarantine.blobs(&commits, limits).await?;
        let large = limits.large_file;
        let findings =
            import_findings::inspect_commits(&commits, &blobs, large, rules.protected, rules.secrets, limits.findings);
        if findings.iter().any(|finding| finding.kind.is_blocking()) {
            return Err(ImportFailure::Refused(ImportRefusal::Stopped, findings));
        }
        quarantine.release()?;
        let shadow = rules.iteration_ref.map(|(run, n)| iteration_ref_name(run, n));
        let names: Vec<String> = shadow.into_iter().chain([rules.branch.ref_name()]).collect();
        self.set_refs(&names, &sha).await?;
        Ok((sha, count, findings))
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
            return Err(ImportRefusal::TooLarge { what: "size".to_owned(), limit: limits.bundle_bytes }.into());
        }
        let mut head = Vec::new();
        file.by_ref().take(HEADER_CAP as u64).read_to_end(&mut head).map_err(io("read"))?;
        let header = bundle::parse_header(&head, self.format)
            .map_err(|why| ImportRefusal::Unreadable { why: why.to_owned() })?;
        if header.objects > limits.objects {
            return Err(
                ImportRefusal::TooLarge { what: "number of objects".to_owned(), limit: limits.objects.into() }.into()
            );
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

/// A folder that holds objects until they are checked; removed on drop.
#[derive(Debug)]
struct ObjectQuarantine<'a> {
    bare: &'a BareRepo,
    folder: tempfile::TempDir,
}

impl<'a> ObjectQuarantine<'a> {
    fn new(bare: &'a BareRepo) -> Result<Self, Error> {
        let objects = bare.path().join("objects");
        let io = |doing| {
            let path = objects.clone();
            move |source| Error::Io { doing, path, source }
        };
        // On the same file system as the repository, so that moving the pack in is a rename.
        let folder =
            tempfile::Builder::new().prefix("incoming-").tempdir_in(&objects).map_err(io("make a folder in"))?;
        std::fs::create_dir(folder.path().join("pack")).map_err(io("make a folder in"))?;
        Ok(Self { bare, folder })
    }

    fn command(&self, doing: &'static str) -> GitCommand<'a> {
        let objects = self.bare.path().join("objects");
        let call = self.bare.command(doing).env("GIT_OBJECT_DIRECTORY", self.folder.path());
        // A single allocation above this is a bomb, not a source file.
        call.env("GIT_ALTERNATE_OBJECT_DIRECTORIES", quoted_alternate(&objects)).env("GIT_ALLOC_LIMIT", "512m")
    }

    async fn commits(&self, sha: &Sha, rules: ImportRules<'_>) -> Result<Vec<CommitChanges>, ImportFailure> {
        const DOING: &str = "walk the imported commits";
        let call =
            self.command(DOING).args(["log", "-z", "--raw", "-m", "-r", "--root", "--no-renames", "--no-abbrev"]);
        let call =
            call.args(["--no-ext-diff", "--no-textconv", "--no-color", "--no-show-signature", raw_diff::LOG_FORMAT]);
        let call = call.arg(format!("--max-count={}", u64::from(rules.limits.commits) + 1));
        let call = call.args([sha.as_str().to_owned(), format!("^{}", rules.base), "--".to_owned()]);
        let done = call.timeout(rules.limits.time).cap(256 << 20, GitOverflow::Fail).run().await?;
        if done.code != 0 {
            return Err(ImportRefusal::Broken { said: done.stderr_tail() }.into());
        }
        let mut commits = raw_diff::parse_log(&done.stdout).ok_or(Error::UnexpectedOutput { doing: DOING })?;
        commits.reverse();
        // Headers that no format prints, such as `gpgsig` or invented ones, are pushed too.
        let names = raw_diff::terminated_list(commits.iter().map(|commit| commit.sha.as_str()), '\n');
        let whole = self.contents(names, COMMITS_CAP, GitOverflow::Fail, rules.limits).await?.unwrap_or_default();
        for commit in &mut commits {
            if let Some(whole) = whole.get(&commit.sha) {
                commit.metadata.push(b'\n');
                commit.metadata.extend_from_slice(whole);
            }
        }
        Ok(commits)
    }

    /// Reads the sizes of all changed blobs and the contents of small ones.
    async fn blobs(&self, commits: &[CommitChanges], limits: ImportLimits) -> Result<ImportedBlobs, ImportFailure> {
        let sides = commits.iter().flat_map(|commit| &commit.changes).flat_map(|change| [&change.old, &change.new]);
        let wanted: BTreeSet<&Sha> =
            sides.flatten().filter(|(mode, _)| *mode != GITLINK_MODE).map(|(_, sha)| sha).collect();
        if wanted.is_empty() {
            return Ok(ImportedBlobs::default());
        }
        let names = raw_diff::terminated_list(wanted.into_iter().map(Sha::as_str), '\n');
        // Most imports are small and need one git process; only a large one is measured first.
        let mut blobs = match self.contents(names.clone(), SMALL_IMPORT_BYTES, GitOverflow::Cut, limits).await? {
            Some(contents) => ImportedBlobs {
                sizes: contents.iter().map(|(sha, content)| (sha.clone(), content.len() as u64)).collect(),
                contents,
            },
            None => self.measure_blobs(names, limits).await?,
        };
        if blobs.sizes.values().fold(0, |sum: u64, size| sum.saturating_add(*size)) > limits.unpacked_bytes {
            let what = "unpacked content".to_owned();
            return Err(ImportRefusal::TooLarge { what, limit: limits.unpacked_bytes }.into());
        }
        let sizes = &blobs.sizes;
        blobs.contents.retain(|sha, _| sizes.get(sha).is_some_and(|size| *size <= limits.large_file));
        Ok(blobs)
    }

    async fn measure_blobs(&self, names: String, limits: ImportLimits) -> Result<ImportedBlobs, ImportFailure> {
        let call = self.command("measure the imported files").args(["cat-file", "--buffer"]);
        let call = call.arg("--batch-check=%(objectname) %(objectsize)").bytes(names);
        let done = call.timeout(limits.time).run_checked().await?;
        let mut sizes = HashMap::new();
        let mut small = String::new();
        let mut room = 0_u64;
        for line in done.text().lines() {
            let parsed = line.split_once(' ').and_then(|(sha, size)| Some((Sha::parse(sha).ok()?, size.parse().ok()?)));
            let Some((sha, size)): Option<(Sha, u64)> = parsed else { return Err(missing_object(line).into()) };
            if size <= limits.large_file {
                small.push_str(sha.as_str());
                small.push('\n');
                room = room.saturating_add(size).saturating_add(128);
            }
            sizes.insert(sha, size);
        }
        if room > limits.unpacked_bytes {
            // Too much to read; the sizes alone are enough to refuse it.
            return Ok(ImportedBlobs { sizes, contents: HashMap::new() });
        }
        let room = usize::try_from(room).unwrap_or(usize::MAX);
        let contents = self.contents(small, room, GitOverflow::Fail, limits).await?.unwrap_or_default();
        Ok(ImportedBlobs { sizes, contents })
    }

    /// Reads whole blobs; `None` if they exceed the cap.
    async fn contents(
        &self,
        names: String,
        cap: usize,
        over: GitOverflow,
        limits: ImportLimits,
    ) -> Result<Option<HashMap<Sha, Vec<u8>>>, ImportFailure> {
        const DOING: &str = "read the imported files";
        let call = self.command(DOING).args(["cat-file", "--batch", "--buffer"]).bytes(names);
        let done = call.timeout(limits.time).cap(cap, over).run_checked().await?;
        if done.cut {
            return Ok(None);
        }
        let mut contents = HashMap::new();
        let mut rest = done.stdout.as_slice();
        while !rest.is_empty() {
            let Some((sha, content, behind)) = raw_diff::split_blob(rest) else {
                return Err(missing_object(&String::from_utf8_lossy(rest)).into());
            };
            contents.insert(sha, content.to_vec());
            rest = behind;
        }
        Ok(Some(contents))
    }

    /// Moves the pack into the repository, its index last: for git a pack without an index does not exist.
    fn release(self) -> Result<(), Error> {
        let from = self.folder.path().join("pack");
        let to = self.bare.path().join("objects/pack");
        let io = |doing, path: &Path| {
            let path = path.to_owned();
            move |source: io::Error| Error::Io { doing, path, source }
        };
        let mut files: Vec<PathBuf> = Vec::new();
        for entry in std::fs::read_dir(&from).map_err(io("read", &from))? {
            files.push(entry.map_err(io("read", &from))?.path());
        }
        files.retain(|file| file.extension().is_some_and(|end| end != "keep"));
        files.sort_by_key(|file| file.extension().is_some_and(|end| end == "idx"));
        for file in &files {
            let Some(name) = file.file_name() else { continue };
            std::fs::rename(file, to.join(name)).map_err(io("move", file))?;
        }
        // The branch may point there only once the names are on disk.
        let folder = std::fs::File::open(&to).map_err(io("open", &to))?;
        folder.sync_all().map_err(io("sync", &to))
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

fn missing_object(line: &str) -> ImportRefusal {
    ImportRefusal::Broken { said: ralph_core::text::strip_control(ralph_core::text::first_line(line, 120)) }
}

/// How large all imported commits may be together, without their files.
const COMMITS_CAP: usize = 64 << 20;
const SMALL_IMPORT_BYTES: usize = 32 << 20;
const STALE_LOCK_AGE: Duration = Duration::from_mins(1);
