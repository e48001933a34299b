//! Moves commits between a run's own repository and its sandbox: one commit in, new commits out.

use std::path::Path;
use std::pin::Pin;

use globset::{Glob, GlobSet, GlobSetBuilder};
use jiff::Timestamp;
use ralph_core::event::{CommitIdentity, ReviewFinding, RunStart};
use ralph_core::identifiers::TaskBranch;
use ralph_core::redact::Redactor;
use ralph_core::run::RunState;
use ralph_core::text::{head, strip_control};
use ralph_sandbox::Sandbox;

use super::import::{ImportLimits, ImportOutcome, ImportQuantity, ImportRefusal, ImportRules, SecretScan};
use super::in_sandbox::{self, BundleOutcome, BundleRequest, CloneSeed, StateFiles};
use super::{
    BareRepo, CommitStamp, CommitTrailer, DiffLimits, Error, FileDiffStat, FindingKind, GitProgram, ImportFinding,
    RunName, Sha,
};

/// The commits imported from a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ImportedWork {
    /// `None` if nothing was imported.
    pub(crate) sha: Option<Sha>,
    pub(crate) commits: u32,
    pub(crate) findings: Vec<ReviewFinding>,
    /// The branch no longer contains the commit the run started from: nothing of it can ever be published.
    pub(crate) base_missing: bool,
    /// Protected paths that differ from the start in the imported commit.
    pub(crate) protected: Vec<String>,
}

/// The largest diff shown to the user.
const DIFF_CAP: usize = 32 << 20;

/// The largest file with a pinned part.
const PINNED_FILE_CAP: usize = 4 << 20;

/// The exit code of a command that was ended at its timeout.
const TIMEOUT_CODE: i32 = 124;

/// How much of a link's target is shown.
const TARGET_SHOWN: usize = 200;

/// Returns the author and date of a commit made now.
pub(crate) fn stamp(identity: &CommitIdentity) -> CommitStamp {
    CommitStamp { identity: identity.clone(), at: Timestamp::now() }
}

/// Returns the trailers that link a commit to its run.
pub(crate) fn trailers(run: &str, n: u32) -> [CommitTrailer; 2] {
    [CommitTrailer::new("Ralph-Run", run), CommitTrailer::new("Ralph-Iteration", n.to_string())]
}

/// Seeds a sandbox with a commit as the run's branch.
pub(crate) async fn seed_sandbox(
    sandbox: &dyn Sandbox,
    bare: &BareRepo,
    scratch: &Path,
    branch: &TaskBranch,
    sha: &str,
    identity: &CommitIdentity,
    keep: StateFiles,
) -> Result<(), Error> {
    bare.set_branch(branch, &Sha::parse(sha)?).await?;
    let bundle = scratch.join("seed.bundle");
    remove(&bundle);
    bare.write_bundle(&bundle, branch).await?;
    let shallow = bare.shallow()?;
    let seed = CloneSeed { bundle: &bundle, branch, identity, shallow: shallow.as_deref(), state: keep };
    let seeded = in_sandbox::seed(sandbox, seed).await;
    remove(&bundle);
    seeded?;
    Ok(())
}

/// Imports the commits of a sandbox into the run's own repository and checks them; `None` if `aborted` was ready before
/// they were checked.
#[expect(clippy::too_many_arguments, reason = "source, destination and the rules of the import")]
pub(crate) async fn import_from_sandbox(
    sandbox: &dyn Sandbox,
    bare: &BareRepo,
    scratch: &Path,
    started: &RunStart,
    n: u32,
    start: &Sha,
    known: Option<Sha>,
    redactor: &Redactor,
    aborted: impl Future<Output = ()>,
) -> Result<Option<ImportedWork>, Error> {
    let protected = globs(started.protected_paths.iter().chain(&started.proof_files));
    let secrets = |bytes: &[u8]| redactor.first_in_file(bytes).map(|shape| shape.to_string());
    let mut base = known.unwrap_or_else(|| start.clone());
    let mut aborted = std::pin::pin!(aborted);
    loop {
        let imported =
            import_bundle(sandbox, bare, scratch, started, n, &base, &protected, &secrets, aborted.as_mut()).await?;
        let Some(imported) = imported else { return Ok(None) };
        match imported {
            ImportOutcome::Kept { sha, commits: _, findings } => {
                let commits = bare.odb().commit_count(start, &sha).await?;
                let mut findings: Vec<ReviewFinding> =
                    findings.iter().map(|finding| describe_finding(finding, redactor)).collect();
                // The clone's own claims are not trusted: the commit is compared with the start on the host.
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
                let base_missing = false;
                return Ok(Some(ImportedWork { sha: Some(sha), commits, findings, base_missing, protected: hit }));
            }
            // History was rewritten inside: everything since the start is checked again.
            ImportOutcome::Refused { why: ImportRefusal::NotDescended, .. } if base != *start => base = start.clone(),
            ImportOutcome::Refused { why, findings } => {
                let mut reported: Vec<ReviewFinding> =
                    findings.iter().map(|finding| describe_finding(finding, redactor)).collect();
                if !reported.iter().any(|finding| finding.stop) {
                    let next = why.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
                    reported.push(ReviewFinding {
                        rule: "refused".to_owned(),
                        path: String::new(),
                        detail: redacted(&format!("{why}{next}"), redactor),
                        stop: true,
                    });
                }
                let base_missing = why == ImportRefusal::NotDescended;
                return Ok(Some(ImportedWork {
                    sha: None,
                    commits: 0,
                    findings: reported,
                    base_missing,
                    protected: Vec::new(),
                }));
            }
        }
    }
}

/// Returns the test command if it reads a path.
fn command_reading<'a>(started: &'a RunStart, path: &str) -> Option<&'a str> {
    let command = started.test_command.as_str();
    ralph_core::proof_files::command_reads(command, path).then(|| ralph_core::text::first_line(command, 80))
}

#[expect(clippy::too_many_arguments, reason = "source, destination and the rules of the import")]
async fn import_bundle(
    sandbox: &dyn Sandbox,
    bare: &BareRepo,
    scratch: &Path,
    started: &RunStart,
    n: u32,
    base: &Sha,
    protected: &GlobSet,
    secrets: SecretScan<'_>,
    mut aborted: Pin<&mut impl Future<Output = ()>>,
) -> Result<Option<ImportOutcome>, Error> {
    let branch = &started.branch;
    let run = RunName::parse(&started.run)?;
    let limits = ImportLimits::default();
    let bundle = scratch.join("work.bundle");
    remove(&bundle);
    let request = BundleRequest { branch, known: base, host: &bundle, cap: limits.bundle_bytes };
    let out = tokio::select! {
        biased;
        () = aborted.as_mut() => return Ok(None),
        out = in_sandbox::bundle(sandbox, request) => out,
    };
    let refused = |why| Ok(Some(ImportOutcome::Refused { why, findings: Vec::new() }));
    let outcome = match out {
        Ok(BundleOutcome::Nothing) => {
            Ok(Some(ImportOutcome::Kept { sha: base.clone(), commits: 0, findings: Vec::new() }))
        }
        Ok(BundleOutcome::File { .. }) => {
            let rules = ImportRules { branch, base, iteration_ref: Some((&run, n)), protected, secrets, limits };
            bare.import_unless_aborted(&bundle, rules, aborted).await
        }
        // The agent may have deleted its branch or damaged its repository: that is a refusal, not an error of ralph.
        Err(Error::SandboxScript { code: TIMEOUT_CODE, .. }) => refused(ImportRefusal::SlowPack),
        Err(Error::SandboxScript { said, .. }) => refused(ImportRefusal::Unreadable { why: said }),
        Err(Error::Sandbox { source: ralph_sandbox::Error::TooLarge { cap, .. }, .. }) => {
            refused(ImportRefusal::TooLarge { what: ImportQuantity::BundleBytes, limit: cap })
        }
        Err(error) => Err(error),
    };
    remove(&bundle);
    outcome
}

/// Describes a finding in text that may be printed and stored: names in the tree come from the model and may contain
/// anything.
fn describe_finding(finding: &ImportFinding, redactor: &Redactor) -> ReviewFinding {
    let (rule, detail) = match &finding.kind {
        FindingKind::LinkOut { target } => {
            // Cut last, otherwise half a secret could remain.
            let target = redacted(target, redactor);
            ("link-out", format!("a link that may leave the tree: {}", head(&target, TARGET_SHOWN)))
        }
        FindingKind::LinkIntoGit { target } => {
            let target = redacted(target, redactor);
            ("link-into-git", format!("a link into `.git`: {}", head(&target, TARGET_SHOWN)))
        }
        FindingKind::ControlCharacters => ("control-characters", "characters that a terminal obeys".to_owned()),
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

/// Removes control characters, which could hide a secret from the search, and then masks secrets.
fn redacted(text: &str, redactor: &Redactor) -> String {
    redactor.redact(&strip_control(text)).into_owned()
}

/// Compiles globs; `dir` and `dir/` also protect everything below them.
///
/// A pattern also matches the path that is spelled like it, such as `a[1].txt`. One that is no valid glob matches that
/// path alone, and a set that cannot be built matches everything: what is protected stays so.
pub(crate) fn globs<'a>(patterns: impl Iterator<Item = &'a String>) -> GlobSet {
    let mut set = GlobSetBuilder::new();
    for pattern in patterns {
        let trimmed = pattern.trim_end_matches('/');
        let literal = globset::escape(trimmed);
        for glob in [trimmed.to_owned(), format!("{trimmed}/**"), format!("{literal}/**"), literal] {
            if let Ok(glob) = Glob::new(&glob) {
                set.add(glob);
            }
        }
    }
    set.build().unwrap_or_else(|_| {
        let all = Glob::new("**").expect("it is a valid glob");
        GlobSetBuilder::new().add(all).build().expect("one valid glob makes a set")
    })
}

fn remove(path: &Path) {
    // A file that stays is overwritten or refused by the next step, which then reports it.
    let _ = std::fs::remove_file(path);
}

/// Returns the two commits that a diff of a run compares: for the whole run, or for one iteration.
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

/// Returns the diff of two commits of a run.
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

/// Returns the changed lines per file between two commits of a run.
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
        let described = describe_finding(&finding, &redactor);
        assert_eq!((described.path.as_str(), described.detail.as_str()), want);
    }

    #[test]
    fn findings_contain_no_secret() {
        let secret = || FindingKind::Secret { what: "KEY".to_owned() };
        let text = "what looks like a credential (KEY)";
        check("a/b.txt", secret(), ("a/b.txt", &format!("a/b.txt: {text}")));
        check("", secret(), ("", &format!("a commit message: {text}")));
        check("a/planted-value", secret(), ("a/[redacted:KEY]", &format!("a/[redacted:KEY]: {text}")));
        // Interrupted by characters that a terminal does not show.
        check("plan\u{1b}[0mted-value", secret(), ("[redacted:KEY]", &format!("[redacted:KEY]: {text}")));
        let link = |target: &str| FindingKind::LinkOut { target: target.to_owned() };
        check("l", link("/x/planted-value"), ("l", "l: a link that may leave the tree: /x/[redacted:KEY]"));
        // Where the text is cut, no half of the secret remains.
        let far = format!("{}planted-value", "x".repeat(TARGET_SHOWN - 7));
        let shown = format!("l: a link that may leave the tree: {}[redact", "x".repeat(TARGET_SHOWN - 7));
        check("l", link(&far), ("l", &shown));
    }
}
