//! The two ways between a run's own repository and its sandbox: a commit in, new commits out.

use std::path::Path;

use globset::{Glob, GlobSet, GlobSetBuilder};
use jiff::Timestamp;
use ralph_core::event::{CommitIdentity, ReviewFinding, RunStart};
use ralph_core::redact::Redactor;
use ralph_core::run::RunState;
use ralph_core::text::{head, strip_control};
use ralph_sandbox::Sandbox;

use super::import::{ImportLimits, ImportOutcome, ImportRefusal, ImportRules};
use super::inside::{self, BundleOutcome, BundleRequest, CloneSeed, StateFiles};
use super::{
    BareRepo, CommitStamp, CommitTrailer, DiffLimits, Error, FileDiffStat, FindingKind, GitProgram, ImportFinding,
    RunBranch, RunName, Sha,
};

/// What came out of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ImportedWork {
    /// `None` where nothing was taken.
    pub(crate) sha: Option<Sha>,
    pub(crate) commits: u32,
    pub(crate) findings: Vec<ReviewFinding>,
    /// The branch no longer contains the commit the run started from: nothing of it can ever be handed over.
    pub(crate) base_missing: bool,
    /// Protected paths that are not in the commit as they were at the start.
    pub(crate) protected: Vec<String>,
}

/// How large a diff may be that is shown to a person.
const DIFF_CAP: usize = 32 << 20;

/// How large a file may be of which a part is pinned.
const PINNED_FILE_CAP: usize = 4 << 20;

/// So much of where a link leads is told.
const TARGET_SHOWN: usize = 200;

/// Returns who and when of a commit made now.
pub(crate) fn stamp(identity: &CommitIdentity) -> CommitStamp {
    CommitStamp { identity: identity.clone(), at: Timestamp::now() }
}

/// Returns the trailers that tie a commit to its run.
pub(crate) fn trailers(run: &str, n: u32) -> [CommitTrailer; 2] {
    [CommitTrailer::new("Ralph-Run", run), CommitTrailer::new("Ralph-Iteration", n.to_string())]
}

/// Puts a commit into a sandbox as the run's branch.
pub(crate) async fn seed_sandbox(
    sandbox: &dyn Sandbox,
    bare: &BareRepo,
    scratch: &Path,
    branch: &str,
    sha: &str,
    identity: &CommitIdentity,
    keep: StateFiles,
) -> Result<(), Error> {
    let branch = RunBranch::parse(branch)?;
    bare.set_branch(&branch, &Sha::parse(sha)?).await?;
    let bundle = scratch.join("seed.bundle");
    remove(&bundle);
    bare.write_bundle(&bundle, &branch).await?;
    let shallow = bare.shallow()?;
    let seed = CloneSeed { bundle: &bundle, branch: &branch, identity, shallow: shallow.as_deref(), state: keep };
    let seeded = inside::seed(sandbox, seed).await;
    remove(&bundle);
    seeded?;
    Ok(())
}

/// Takes the commits of a sandbox out into the run's own repository and judges them.
#[expect(clippy::too_many_arguments, reason = "both ends of the way and what it is held against")]
pub(crate) async fn import_from_sandbox(
    sandbox: &dyn Sandbox,
    bare: &BareRepo,
    scratch: &Path,
    started: &RunStart,
    n: u32,
    start: &Sha,
    known: Option<Sha>,
    redactor: &Redactor,
) -> Result<ImportedWork, Error> {
    let protected = globs(started.protected_paths.iter().chain(&started.proof_files));
    let secrets =
        |bytes: &[u8]| redactor.find(&String::from_utf8_lossy(bytes)).first().map(|found| found.shape.to_string());
    let mut base = known.unwrap_or_else(|| start.clone());
    loop {
        let imported = import_bundle(sandbox, bare, scratch, started, n, &base, &protected, &secrets).await?;
        match imported {
            ImportOutcome::Kept { sha, commits: _, findings } => {
                let commits = bare.odb().commit_count(start, &sha).await?;
                let mut findings: Vec<ReviewFinding> =
                    findings.iter().map(|finding| describe_finding(finding, redactor)).collect();
                // What the clone says of itself is not believed: the commit is compared with the start on the host.
                let changed = bare.odb().changed_paths(start, &sha).await?.into_iter().map(|change| change.path);
                let changed: Vec<String> = changed.filter(|path| *path != started.task_path).collect();
                let mut hit: Vec<String> = changed.iter().filter(|path| protected.is_match(path)).cloned().collect();
                for part in started.pinned_parts.iter().filter(|part| changed.contains(&part.path)) {
                    let now = bare.odb().file_at(&sha, &part.path, PINNED_FILE_CAP).await.ok();
                    if !part.is_unchanged(now.as_deref()) {
                        hit.push(part.path.clone());
                    }
                }
                findings.extend(changed.iter().filter(|path| !hit.contains(path)).filter_map(|path| {
                    let command = command_reading(started, path)?;
                    let detail = format!("{path}: the run changed it, and `{command}` reads it");
                    let (path, detail) = (redacted(path, redactor), redacted(&detail, redactor));
                    Some(ReviewFinding { rule: "judge".to_owned(), path, detail, stop: false })
                }));
                return Ok(ImportedWork { sha: Some(sha), commits, findings, base_missing: false, protected: hit });
            }
            // History was rewritten inside: everything since the start is judged anew.
            ImportOutcome::Refused { why: ImportRefusal::NotDescended, .. } if base != *start => base = start.clone(),
            ImportOutcome::Refused { why, findings } => {
                let mut told: Vec<ReviewFinding> =
                    findings.iter().map(|finding| describe_finding(finding, redactor)).collect();
                if !told.iter().any(|finding| finding.stop) {
                    told.push(ReviewFinding {
                        rule: "refused".to_owned(),
                        path: String::new(),
                        detail: redacted(&why.to_string(), redactor),
                        stop: true,
                    });
                }
                let astray = why == ImportRefusal::NotDescended;
                return Ok(ImportedWork {
                    sha: None,
                    commits: 0,
                    findings: told,
                    base_missing: astray,
                    protected: Vec::new(),
                });
            }
        }
    }
}

/// Returns the test command if it reads a path.
fn command_reading<'a>(started: &'a RunStart, path: &str) -> Option<&'a str> {
    let command = started.test_command.as_str();
    ralph_core::proof::command_reads(command, path).then(|| ralph_core::text::first_line(command, 80))
}

#[expect(clippy::too_many_arguments, reason = "both ends of the way and what it is held against")]
async fn import_bundle(
    sandbox: &dyn Sandbox,
    bare: &BareRepo,
    scratch: &Path,
    started: &RunStart,
    n: u32,
    base: &Sha,
    protected: &GlobSet,
    secrets: &(dyn Fn(&[u8]) -> Option<String> + Sync),
) -> Result<ImportOutcome, Error> {
    let branch = RunBranch::parse(&started.branch)?;
    let run = RunName::parse(&started.run)?;
    let limits = ImportLimits::default();
    let bundle = scratch.join("work.bundle");
    remove(&bundle);
    let out = inside::bundle(
        sandbox,
        BundleRequest { branch: &branch, known: base, host: &bundle, cap: limits.bundle_bytes },
    )
    .await;
    let outcome = match out {
        Ok(BundleOutcome::Nothing) => Ok(ImportOutcome::Kept { sha: base.clone(), commits: 0, findings: Vec::new() }),
        Ok(BundleOutcome::File { .. }) => {
            bare.import(
                &bundle,
                ImportRules { branch: &branch, base, iteration_ref: Some((&run, n)), protected, secrets, limits },
            )
            .await
        }
        // The agent may have deleted its branch or broken its repository: that is a refusal, not our failure.
        Err(Error::SandboxScript { said, .. }) => {
            Ok(ImportOutcome::Refused { why: ImportRefusal::Unreadable { why: said }, findings: Vec::new() })
        }
        Err(Error::Sandbox { source: ralph_sandbox::Error::TooLarge { cap, .. }, .. }) => Ok(ImportOutcome::Refused {
            why: ImportRefusal::TooLarge { what: "size".to_owned(), limit: cap },
            findings: Vec::new(),
        }),
        Err(error) => Err(error),
    };
    remove(&bundle);
    outcome
}

/// Puts a finding into words that may be printed and kept: names in the tree are the model's own, and may hold anything.
fn describe_finding(finding: &ImportFinding, redactor: &Redactor) -> ReviewFinding {
    let (rule, detail) = match &finding.kind {
        FindingKind::LinkOut { target } => {
            // Cut last, or half a secret could be left.
            let target = redacted(target, redactor);
            ("link-out", format!("a link that may leave the tree: {}", head(&target, TARGET_SHOWN)))
        }
        FindingKind::Protected => ("protected", "a protected path was changed on the way".to_owned()),
        FindingKind::Submodule => ("submodule", "submodules are changed".to_owned()),
        FindingKind::DotGit => ("dot-git", "a name some file systems take for `.git`".to_owned()),
        FindingKind::AutoRun { why } => ("auto-run", why.clone()),
        FindingKind::HookName => ("hook-name", "an executable named like a git hook".to_owned()),
        FindingKind::LargeFile { bytes } => ("large-file", format!("{bytes} bytes, not searched for secrets")),
        FindingKind::Secret { what } => ("secret", format!("what looks like a credential ({what})")),
    };
    let path = redacted(&finding.path, redactor);
    let place = if path.is_empty() { "a commit message".to_owned() } else { path.clone() };
    ReviewFinding {
        rule: rule.to_owned(),
        detail: format!("{place}: {}", redacted(&detail, redactor)),
        path,
        stop: finding.kind.is_blocking(),
    }
}

/// Masks what is left when everything is gone that could hide a secret from the search.
fn redacted(text: &str, redactor: &Redactor) -> String {
    redactor.redact(&strip_control(text)).into_owned()
}

/// Compiles globs; `dir` and `dir/` protect what is below them too.
pub(crate) fn globs<'a>(patterns: impl Iterator<Item = &'a String>) -> GlobSet {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        let trimmed = pattern.trim_end_matches('/');
        for glob in [trimmed.to_owned(), format!("{trimmed}/**")] {
            if let Ok(glob) = Glob::new(&glob) {
                set.add(glob);
            }
        }
    }
    set.build().unwrap_or_else(|_| GlobSet::empty())
}

fn remove(path: &Path) {
    // What stays is overwritten or refused by the next step, which then says so.
    let _ = std::fs::remove_file(path);
}

/// Returns the commits a diff of a run goes between: the whole run, or one iteration.
pub async fn diff_range(
    tool: &GitProgram,
    folder: &crate::store::RunFolder,
    state: &RunState,
    iteration: Option<u32>,
) -> Result<Option<(String, String)>, Error> {
    let Some(place) = &state.workplace else { return Ok(None) };
    let bare = BareRepo::open(tool, &folder.bare_path()).await?;
    let Some(n) = iteration else {
        return Ok(state.imported.as_ref().map(|to| (place.start.to_string(), to.to_string())));
    };
    let run = RunName::parse(&state.started.run)?;
    let Some(to) = bare.iteration_commit(&run, n).await? else { return Ok(None) };
    for earlier in (1..n).rev() {
        if let Some(from) = bare.iteration_commit(&run, earlier).await? {
            return Ok(Some((from.to_string(), to.to_string())));
        }
    }
    Ok(Some((place.start.to_string(), to.to_string())))
}

/// Returns the difference of two commits of a run.
pub async fn diff(tool: &GitProgram, folder: &crate::store::RunFolder, from: &str, to: &str) -> Result<String, Error> {
    let bare = BareRepo::open(tool, &folder.bare_path()).await?;
    let caps = DiffLimits { bytes: DIFF_CAP, ..DiffLimits::default() };
    let patch = bare.odb().diff(&Sha::parse(from)?, &Sha::parse(to)?, caps).await?;
    let mut text = String::from_utf8_lossy(&patch.bytes).into_owned();
    if patch.cut {
        text.push_str("\n[… the rest is left out …]\n");
    }
    Ok(text)
}

/// Returns the lines per file between two commits of a run.
pub async fn diffstat(
    tool: &GitProgram,
    folder: &crate::store::RunFolder,
    from: &str,
    to: &str,
) -> Result<Vec<FileDiffStat>, Error> {
    let bare = BareRepo::open(tool, &folder.bare_path()).await?;
    Ok(bare.odb().diffstat(&Sha::parse(from)?, &Sha::parse(to)?).await?.files)
}

#[cfg(test)]
mod tests {
    use ralph_core::secret::Secret;

    use super::*;

    #[track_caller]
    fn check(path: &str, kind: FindingKind, want: (&str, &str)) {
        let redactor = Redactor::new([("KEY".to_owned(), Secret::new("planted-value"))]);
        let finding = ImportFinding { commit: Sha::parse(&"c".repeat(40)).unwrap(), path: path.to_owned(), kind };
        let told = describe_finding(&finding, &redactor);
        assert_eq!((told.path.as_str(), told.detail.as_str()), want);
    }

    #[test]
    fn findings_hold_no_secret() {
        let secret = || FindingKind::Secret { what: "KEY".to_owned() };
        let told = "what looks like a credential (KEY)";
        check("a/b.txt", secret(), ("a/b.txt", &format!("a/b.txt: {told}")));
        check("", secret(), ("", &format!("a commit message: {told}")));
        check("a/planted-value", secret(), ("a/[redacted:KEY]", &format!("a/[redacted:KEY]: {told}")));
        // Taken apart by what a terminal does not show.
        check("plan\u{1b}[0mted-value", secret(), ("[redacted:KEY]", &format!("[redacted:KEY]: {told}")));
        let link = |target: &str| FindingKind::LinkOut { target: target.to_owned() };
        check("l", link("/x/planted-value"), ("l", "l: a link that may leave the tree: /x/[redacted:KEY]"));
        // Where the words are cut, no half of it is left.
        let far = format!("{}planted-value", "x".repeat(TARGET_SHOWN - 7));
        let shown = format!("l: a link that may leave the tree: {}[redact", "x".repeat(TARGET_SHOWN - 7));
        check("l", link(&far), ("l", &shown));
    }
}
