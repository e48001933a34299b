//! Runs the baseline (red first): before a token is spent, every proof runs on the base commit in the run's own kind
//! of sandbox.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use ralph_core::decide_next_step::{self, DueCheck};
use ralph_core::event::{BaselineProof, BaselineVerdict, RunStart};
use ralph_core::lint::{self, BaselineCheck, BaselineRun, LintFinding, LintRule, Severity};
use ralph_core::proof_files::{ObservedFiles, ProofFileChanges};
use ralph_core::text;

use crate::check_execution;
use crate::error::Error;
use crate::git::BareRepo;
use crate::host_services::HostContext;
use crate::proof_file_restore::{HeldFileRules, HeldFiles};
use crate::run::{SandboxRole, fresh_sandbox};
use crate::sandbox_lifecycle;

/// A check is repeated to detect flakiness only while it takes no longer than this.
const QUICK_MS: u64 = 5_000;

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
    due: Vec<DueCheck>,
}

impl BaselineReport {
    /// Returns the report in the form of the event.
    pub fn lines(&self) -> Vec<BaselineProof> {
        let line = |(due, check): (&DueCheck, &BaselineCheck)| BaselineProof {
            proves: due.proves.clone(),
            command: due.command.clone(),
            verdict: verdict(check),
        };
        self.due.iter().zip(&self.checks).map(line).collect()
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
                    let (code, timed_out, written) = (ran.code, ran.timed_out, ran.tampered);
                    runs.push(BaselineRun { code, timed_out, stderr_tail, written });
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
    let findings = lint::lint_baseline(&checks);
    Ok(BaselineReport { checks, findings, leaked_secrets: redactor.take_sightings(), observed, due })
}

fn verdict(check: &BaselineCheck) -> BaselineVerdict {
    let found = lint::lint_baseline(std::slice::from_ref(check));
    let has = |rule: LintRule| found.iter().any(|finding| finding.rule == rule);
    if has(LintRule::Flaky) {
        BaselineVerdict::Flaky
    } else if has(LintRule::Slow) {
        BaselineVerdict::Slow
    } else if has(LintRule::MissingTool) {
        BaselineVerdict::MissingTool
    } else if has(LintRule::DeniedHost) {
        BaselineVerdict::DeniedHost
    } else if check.runs.first().is_some_and(|run| run.code == 0 && !run.timed_out) {
        BaselineVerdict::Vacuous
    } else {
        BaselineVerdict::Red
    }
}
