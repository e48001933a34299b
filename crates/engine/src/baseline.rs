//! Red first: before a token is spent, every proof runs on the base commit in the run's own kind of sandbox.

use std::path::Path;
use std::time::Duration;

use ralph_core::decide::{self, Due};
use ralph_core::event::{Baseline, BaselineVerdict, Started};
use ralph_core::lint::{self, BaselineCheck, BaselineRun, Finding, Rule, Severity};
use ralph_core::text;

use crate::check;
use crate::error::Error;
use crate::git::Bare;
use crate::host::Host;
use crate::run::{Role, discard, fresh, restarts};

/// A check is repeated to find out whether it is flaky only while it is quick.
const QUICK_MS: u64 = 5_000;

/// How often a quick check runs.
const RUNS: usize = 3;

/// What the base commit says to every proof.
#[derive(Debug)]
pub struct Report {
    pub checks: Vec<BaselineCheck>,
    pub findings: Vec<Finding>,
    /// Secrets that the proofs printed, and where they were seen.
    pub seen: Vec<(String, &'static str)>,
    due: Vec<Due>,
}

impl Report {
    /// Returns the report as the event tells it.
    pub fn lines(&self) -> Vec<Baseline> {
        let line = |(due, check): (&Due, &BaselineCheck)| Baseline {
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
pub async fn check(host: &Host, bare: &Bare, scratch: &Path, started: &Started, sha: &str) -> Result<Report, Error> {
    let sandbox = fresh(host, bare, scratch, started, sha, Role::Baseline).await?;
    let due = decide::proof_due(started);
    let redactor = host.redactor();
    let timeout = Duration::from_secs(started.check_timeout_s);
    let mut checks = Vec::new();
    let mut trouble = None;
    'all: for due in &due {
        let mut runs = Vec::new();
        for _ in 0..RUNS {
            let before = restarts(host, sandbox.id());
            let mut ran = check::run(&*sandbox, &due.command, ".", timeout, &redactor).await;
            // What failed because its way out was cut says nothing about the commit.
            if matches!(&ran, Ok(ran) if !ran.passed()) && restarts(host, sandbox.id()) != before {
                ran = check::run(&*sandbox, &due.command, ".", timeout, &redactor).await;
            }
            match ran {
                Ok(ran) => {
                    let quick = ran.duration_ms <= QUICK_MS;
                    let stderr_tail = text::tail(&ran.complaint, 20, 2000).to_owned();
                    runs.push(BaselineRun { code: ran.code, timed_out: ran.timed_out, stderr_tail });
                    if !quick {
                        break;
                    }
                }
                Err(error) => {
                    trouble = Some(error);
                    break 'all;
                }
            }
        }
        let id = due.proves.first().cloned().unwrap_or_default();
        checks.push(BaselineCheck {
            id,
            command: due.command.clone(),
            runs,
            denied_hosts: refused(host, sandbox.id()),
        });
    }
    discard(&*sandbox).await;
    if let Some(error) = trouble {
        return Err(error);
    }
    let findings = lint::baseline(&checks);
    Ok(Report { checks, findings, seen: redactor.seen(), due })
}

/// Returns the hosts that were asked for in vain since this was last asked.
fn refused(host: &Host, sandbox: &str) -> Vec<String> {
    #[cfg(target_os = "linux")]
    return host.egress().refused(sandbox).into_iter().collect();
    #[cfg(not(target_os = "linux"))]
    {
        let _ = (host, sandbox);
        Vec::new()
    }
}

fn verdict(check: &BaselineCheck) -> BaselineVerdict {
    let found = lint::baseline(std::slice::from_ref(check));
    let has = |rule: Rule| found.iter().any(|finding| finding.rule == rule);
    if has(Rule::Flaky) {
        BaselineVerdict::Flaky
    } else if has(Rule::Slow) {
        BaselineVerdict::Slow
    } else if has(Rule::MissingTool) {
        BaselineVerdict::MissingTool
    } else if has(Rule::DeniedHost) {
        BaselineVerdict::DeniedHost
    } else if check.runs.first().is_some_and(|run| run.code == 0 && !run.timed_out) {
        BaselineVerdict::Vacuous
    } else {
        BaselineVerdict::Red
    }
}
