//! Runs the baseline (red first): before a token is spent, every proof runs on the base commit in the run's own kind
//! of sandbox.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use ralph_core::decide_next_step::{self, DueCheck};
use ralph_core::event::{BaselineProof, BaselineVerdict, RunStart};
use ralph_core::lint::{self, BaselineCheck, BaselineRun, LintFinding, LintRule, ProjectNames, Severity};
use ralph_core::proof_files::{ObservedFiles, ProofFileChanges};
use ralph_core::text;
use serde::Serialize;

use crate::check_execution;
use crate::error::Error;
use crate::git::{BareRepo, Sha};
use crate::host_environment::HostContext;
use crate::proof_file_restore::{HeldFileRules, HeldFiles};
use crate::run::{SandboxRole, fresh_sandbox};
use crate::sandbox_lifecycle;

/// A check is repeated to detect flakiness only while it takes no longer than this.
const QUICK_MS: u64 = 5_000;

/// The largest task or list of submodules that is read.
const SMALL_FILE_CAP: usize = 4 << 20;

/// Files that declare dependencies.
const MANIFESTS: [&str; 13] = [
    "package.json",
    "requirements.txt",
    "requirements-dev.txt",
    "dev-requirements.txt",
    "pyproject.toml",
    "setup.py",
    "setup.cfg",
    "Pipfile",
    "Gemfile",
    "go.mod",
    "Cargo.toml",
    "composer.json",
    "pom.xml",
];

/// How often a quick check runs.
const REPEAT_COUNT: usize = 3;

/// The results of every proof on the base commit.
#[derive(Debug)]
pub struct BaselineReport {
    pub checks: Vec<BaselineCheck>,
    pub findings: Vec<LintFinding>,
    /// Secrets that the proofs printed, and where they appeared.
    pub leaked_secrets: Vec<(String, &'static str)>,
    /// The files that each command used, where the backend can record them.
    pub observed: BTreeMap<String, ObservedFiles>,
    project: ProjectNames,
    due: Vec<DueCheck>,
}

/// One proof on the base commit, for people and programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BaselineRow {
    pub proves: Vec<String>,
    pub command: String,
    pub verdict: BaselineVerdict,
    pub duration_ms: u64,
    /// The line of its output that says most.
    pub line: String,
}

impl BaselineReport {
    /// Returns the report in the form of the event.
    pub fn lines(&self) -> Vec<BaselineProof> {
        let line = |(due, check): (&DueCheck, &BaselineCheck)| BaselineProof {
            proves: due.proves.clone(),
            command: due.command.clone(),
            verdict: verdict(check, &self.project),
        };
        self.due.iter().zip(&self.checks).map(line).collect()
    }

    /// Returns one row for every proof: its result, its time, and the line of its output that says most.
    pub fn rows(&self) -> Vec<BaselineRow> {
        let row = |(line, check): (BaselineProof, &BaselineCheck)| {
            let run = check.runs.first();
            BaselineRow {
                proves: line.proves.iter().map(ToString::to_string).collect(),
                command: line.command,
                verdict: line.verdict,
                duration_ms: run.map_or(0, |run| run.duration_ms),
                line: run.map(|run| lint::telling_line(&run.output_tail)).unwrap_or_default(),
            }
        };
        self.lines().into_iter().zip(&self.checks).map(row).collect()
    }

    pub fn has_errors(&self) -> bool {
        self.findings.iter().any(|finding| finding.severity == Severity::Error)
    }
}

/// Runs every proof on the base commit.
pub async fn check(
    host: &HostContext,
    bare: &BareRepo,
    scratch: &Path,
    started: &RunStart,
    sha: &str,
) -> Result<BaselineReport, Error> {
    let held = HeldFiles::load(bare, HeldFileRules::of_run(started)).await?;
    let sandbox = fresh_sandbox(host, bare, scratch, started, sha, SandboxRole::Baseline).await?;
    let due = decide_next_step::proof_due(started);
    let redactor = host.redactor();
    let timeout = Duration::from_secs(started.check_timeout_s);
    // The run has not changed anything yet.
    let none = ProofFileChanges::default();
    let (mut checks, mut observed) = (Vec::new(), BTreeMap::new());
    let mut failure = None;
    'all: for due in &due {
        let mut runs = Vec::new();
        for n in 0..REPEAT_COUNT {
            let before = host.egress().restarts(sandbox.id());
            let line = &due.command;
            let mut ran = if n == 0 {
                check_execution::run_observed_check(&*sandbox, &held, line, timeout, &redactor).await.map(
                    |(ran, seen)| {
                        observed.extend(seen.map(|seen| (line.clone(), seen)));
                        ran
                    },
                )
            } else {
                check_execution::run_check(&*sandbox, &held, &none, line, timeout, &redactor).await
            };
            // A failure caused by a cut egress connection says nothing about the commit.
            if matches!(&ran, Ok(ran) if !ran.passed()) && host.egress().restarts(sandbox.id()) != before {
                ran = check_execution::run_check(&*sandbox, &held, &none, &due.command, timeout, &redactor).await;
            }
            match ran {
                Ok(ran) => {
                    let quick = ran.duration_ms <= QUICK_MS;
                    let stderr_tail = text::tail(&ran.complaint, 20, 2000).to_owned();
                    let output_tail = text::tail(&ran.text, 60, 6000).to_owned();
                    let (code, timed_out, written, duration_ms) =
                        (ran.code, ran.timed_out, ran.tampered, ran.duration_ms);
                    runs.push(BaselineRun { code, timed_out, stderr_tail, output_tail, duration_ms, written });
                    if !quick {
                        break;
                    }
                }
                Err(error) => {
                    failure = Some(error);
                    break 'all;
                }
            }
        }
        let Some(target) = due.proves.first().cloned() else { continue };
        checks.push(BaselineCheck {
            target,
            command: due.command.clone(),
            runs,
            denied_hosts: host.egress().take_refused_hosts(sandbox.id()).into_iter().collect(),
        });
    }
    sandbox_lifecycle::discard(&*sandbox).await;
    if let Some(error) = failure {
        return Err(error);
    }
    let project = project_names(bare, &held, started).await?;
    let findings = lint::lint_baseline(&checks, &project);
    Ok(BaselineReport { checks, findings, leaked_secrets: redactor.take_sightings(), observed, project, due })
}

/// Collects what belongs to the project, to tell a missing part of it from a missing part of the environment.
async fn project_names(bare: &BareRepo, held: &HeldFiles, started: &RunStart) -> Result<ProjectNames, Error> {
    let start = Sha::from(&started.start_commit);
    let read = async |path: &str| {
        let bytes = bare.odb().file_at(&start, path, SMALL_FILE_CAP).await.unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let submodules = lint::submodule_paths(&read(".gitmodules").await);
    let mut manifests = String::new();
    for name in MANIFESTS.iter().filter(|name| held.base_files().contains(**name)) {
        manifests.push_str(&read(name).await);
        manifests.push('\n');
    }
    let task = read(&started.task_path).await;
    Ok(ProjectNames { files: held.base_files().clone(), task, submodules, manifests })
}

fn verdict(check: &BaselineCheck, project: &ProjectNames) -> BaselineVerdict {
    let found = lint::lint_baseline(std::slice::from_ref(check), project);
    let has = |rule: LintRule| found.iter().any(|finding| finding.rule == rule);
    if has(LintRule::Flaky) {
        BaselineVerdict::Flaky
    } else if has(LintRule::Slow) {
        BaselineVerdict::Slow
    } else if has(LintRule::MissingTool) {
        BaselineVerdict::MissingTool
    } else if has(LintRule::DeniedHost) {
        BaselineVerdict::DeniedHost
    } else if found.iter().any(|found| found.rule == LintRule::CannotStart && found.severity == Severity::Error) {
        BaselineVerdict::CannotStart
    } else if check.runs.first().is_some_and(|run| run.code == 0 && !run.timed_out) {
        BaselineVerdict::Vacuous
    } else {
        BaselineVerdict::Red
    }
}
