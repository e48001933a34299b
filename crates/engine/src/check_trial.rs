//! Tries one check on changes of a project, once as a run would and once with nothing held: attacks on proofs are
//! judged by the difference.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ralph_core::event::CommitIdentity;
use ralph_core::identifiers::TaskBranch;
use ralph_core::proof_files::{ObservedFiles, PinnedSection, ProofFileChanges};
use ralph_core::redact::Redactor;
use ralph_core::text;
use ralph_sandbox::{Backend, Sandbox, SandboxSpec};

use crate::check_execution::{self, CommandResult};
use crate::error::Error;
use crate::git::in_sandbox::StateFiles;
use crate::git::{self, BareRepo, GitProgram, Sha, UserRepo};
use crate::proof_file_restore::{HeldFileRules, HeldFiles};
use crate::run::find_files_of_commands;
use crate::sandbox_lifecycle;

const TIMEOUT: Duration = Duration::from_secs(30);
const PINNED_FILE_CAP: usize = 4 << 20;

/// A project with a check, observed on its current commit.
#[derive(Debug)]
pub struct CheckTrial<'a> {
    backend: &'a dyn Backend,
    user: UserRepo,
    bare: BareRepo,
    scratch: PathBuf,
    command: String,
    rules: HeldFileRules,
    parts: Vec<PinnedSection>,
    /// There are no secrets in these projects.
    redactor: Redactor,
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TrialResult {
    pub passed: bool,
    /// What would be reported of the changes.
    pub files: ProofFileChanges,
    /// The end of its output.
    pub output: String,
}

impl<'a> CheckTrial<'a> {
    /// Observes a check on the current commit of a repository; `scratch` is an empty folder for its own files.
    pub async fn start(
        tool: &GitProgram,
        backend: &'a dyn Backend,
        repo: &Path,
        scratch: &Path,
        command: &str,
    ) -> Result<Self, Error> {
        let user = UserRepo::find(tool, repo).await?;
        let start = resolve(&user, "HEAD").await?;
        let bare = BareRepo::create(tool, &scratch.join("repo.git"), user.format()).await?;
        bare.seed_from(&user, &start).await?;
        let command = command.to_owned();
        let found = find_files_of_commands(&bare, &start, &[], &[&command], &[]).await?;
        let rules = HeldFileRules {
            start: start.clone(),
            task_path: String::new(),
            protected: found.files,
            may_change: Vec::new(),
            commands: vec![command.clone()],
            observed: ObservedFiles::default(),
            left_out: std::collections::BTreeSet::new(),
        };
        let scratch = scratch.to_owned();
        let redactor = Redactor::new([]);
        let mut trial = Self { backend, user, bare, scratch, command, rules, parts: found.parts, redactor };
        let held = HeldFiles::load(&trial.bare, trial.rules.clone()).await?;
        let sandbox = trial.create_sandbox(&start, None).await?;
        let observed =
            check_execution::run_observed_check(&*sandbox, &held, &trial.command, TIMEOUT, &trial.redactor).await;
        sandbox_lifecycle::discard(&*sandbox).await;
        trial.rules.observed = observed?.1.unwrap_or_default();
        Ok(trial)
    }

    /// Runs the check on a commit as a run would; `before` is a command that works in the sandbox first.
    pub async fn run_guarded(&self, commit: &str, before: Option<&str>) -> Result<TrialResult, Error> {
        let open = self.open(commit, before).await?;
        let result = open.check().await;
        open.close().await;
        result
    }

    /// Runs the check on a commit as a plain command, with whatever `before` left behind.
    pub async fn run_unguarded(&self, commit: &str, before: Option<&str>) -> Result<TrialResult, Error> {
        let open = self.open(commit, before).await?;
        let ran = check_execution::run(&*open.sandbox, &self.command, ".", TIMEOUT, &self.redactor).await;
        open.close().await;
        Ok(result_of(&ran?))
    }

    /// Makes a sandbox with a commit, in which the check can run several times.
    pub async fn open(&self, commit: &str, before: Option<&str>) -> Result<OpenTrial<'_>, Error> {
        let commit = resolve(&self.user, commit).await?;
        let held = HeldFiles::load(&self.bare, self.rules.clone()).await?;
        let sandbox = self.create_sandbox(&commit, before).await?;
        Ok(OpenTrial { trial: self, sandbox, held, commit })
    }

    async fn keeps_parts(&self, commit: &Sha) -> bool {
        for part in &self.parts {
            let now = self.bare.odb().file_at(commit, &part.path, PINNED_FILE_CAP).await.ok();
            if !part.is_unchanged(now.as_deref()) {
                return false;
            }
        }
        true
    }

    async fn create_sandbox(&self, commit: &Sha, before: Option<&str>) -> Result<Arc<dyn Sandbox>, Error> {
        self.bare.seed_from(&self.user, commit).await?;
        let mut random = [0_u8; 4];
        getrandom::fill(&mut random).map_err(|_| Error::Random)?;
        let name = format!("ralph-trial-{}", ralph_core::hash::hex(&random));
        let sandbox = self.backend.create(&SandboxSpec { name, ..SandboxSpec::default() }).await?;
        let prepared = self.prepare(&*sandbox, commit, before).await;
        if prepared.is_err() {
            sandbox_lifecycle::discard(&*sandbox).await;
        }
        prepared.map(|()| sandbox)
    }

    async fn prepare(&self, sandbox: &dyn Sandbox, commit: &Sha, before: Option<&str>) -> Result<(), Error> {
        let identity = CommitIdentity { name: "ralph".to_owned(), email: "ralph@localhost".to_owned() };
        let branch = TaskBranch::parse("ralph/trial/check").expect("a legal name");
        let state = StateFiles::Excluded;
        git::seed_sandbox(sandbox, &self.bare, &self.scratch, &branch, commit.as_str(), &identity, state).await?;
        if let Some(before) = before {
            check_execution::run(sandbox, before, ".", TIMEOUT, &self.redactor).await?;
        }
        Ok(())
    }
}

/// A sandbox with one commit of a project.
#[derive(Debug)]
pub struct OpenTrial<'a> {
    trial: &'a CheckTrial<'a>,
    sandbox: Arc<dyn Sandbox>,
    held: HeldFiles,
    commit: Sha,
}

impl OpenTrial<'_> {
    /// Runs the check as a run would.
    pub async fn check(&self) -> Result<TrialResult, Error> {
        let Self { trial, held, commit, .. } = self;
        let changed = held.changes_until(commit).await?;
        let mut changes = held.classify(&changed);
        held.find_in_sources(commit, &mut changes).await?;
        let mut result = self.run_check(held, &changes).await?;
        let protected = changed.iter().find(|change| held.globs.is_match(&change.path));
        result.passed &= protected.is_none() && trial.keeps_parts(commit).await;
        Ok(result)
    }

    /// Returns how long a check takes with all files held and with none, for a commit that changed none of them.
    pub async fn time_held_files(&self) -> Result<(Duration, Duration), Error> {
        let nothing =
            HeldFileRules { protected: Vec::new(), may_change: vec!["**".to_owned()], ..self.trial.rules.clone() };
        let nothing = HeldFiles::load(&self.trial.bare, nothing).await?;
        let unchanged = ProofFileChanges::default();
        let began = Instant::now();
        self.run_check(&self.held, &unchanged).await?;
        let with = began.elapsed();
        let began = Instant::now();
        self.run_check(&nothing, &unchanged).await?;
        Ok((with, began.elapsed()))
    }

    async fn run_check(&self, held: &HeldFiles, changes: &ProofFileChanges) -> Result<TrialResult, Error> {
        let CheckTrial { command, redactor, .. } = self.trial;
        let ran = check_execution::run_check(&*self.sandbox, held, changes, command, TIMEOUT, redactor).await?;
        Ok(result_of(&ran))
    }

    /// Removes the sandbox.
    pub async fn close(self) {
        sandbox_lifecycle::discard(&*self.sandbox).await;
    }
}

async fn resolve(user: &UserRepo, name: &str) -> Result<Sha, Error> {
    let found = user.odb().resolve_commit(name).await?;
    found.ok_or_else(|| Error::MissingCommit { sha: name.to_owned(), branch: "HEAD".to_owned() })
}

fn result_of(ran: &CommandResult) -> TrialResult {
    let output = text::tail(ran.text.trim(), 5, 500).to_owned();
    TrialResult { passed: ran.passed(), files: ran.files.clone(), output }
}
