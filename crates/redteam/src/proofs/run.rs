//! Runs the attacks on proofs one after the other and decides the verdict of each.

use std::ffi::OsString;
use std::fs;
use std::time::Instant;

use ralph_sandbox::Backend;

use super::arena::{PreparedProject, ProofArena};
use super::case::{ExpectedProof, ProofCase, ProofControl, ProofPayload};
use super::cases::ALL;
use crate::case::{CASE_TIMEOUT, timeout_verdict};
use crate::report::{AttackReport, AttackVerdict, RedteamReport};

/// The kernel's setting that forbids tracing.
const TRACING_SETTING: &str = "/proc/sys/kernel/yama/ptrace_scope";

/// Where the attacks run.
#[derive(Debug)]
pub struct ProofTarget<'a> {
    pub backend: &'a dyn Backend,
    /// The directories to search for the host's programs.
    pub search_path: OsString,
}

/// Returns every attack on proofs.
pub fn cases() -> impl Iterator<Item = &'static ProofCase> {
    ALL.iter().copied().flatten()
}

/// Skips all selected cases with a reason.
pub fn skip(
    why: &str,
    only: Option<&str>,
    report: &mut RedteamReport,
    on_case: &mut (dyn FnMut(&AttackReport) + Send),
) {
    for case in selected_cases(only) {
        report_case(case, AttackVerdict::Skipped(why.to_owned()), Instant::now(), report, on_case);
    }
}

/// Runs the selected cases (all without a selection), and reports each as soon as it has ended.
pub async fn run(
    target: &ProofTarget<'_>,
    only: Option<&str>,
    report: &mut RedteamReport,
    on_case: &mut (dyn FnMut(&AttackReport) + Send),
) {
    if selected_cases(only).next().is_none() {
        return;
    }
    let mut arena = ProofArena::new(target.backend, &target.search_path).await;
    for case in selected_cases(only) {
        let began = Instant::now();
        let verdict = match &mut arena {
            Ok(arena) => match tokio::time::timeout(CASE_TIMEOUT, run_case(arena, &case.payload)).await {
                Ok(verdict) => verdict.unwrap_or_else(|verdict| verdict),
                Err(_) => timeout_verdict(),
            },
            Err(verdict) => verdict.clone(),
        };
        report_case(case, verdict, began, report, on_case);
    }
}

fn selected_cases(only: Option<&str>) -> impl Iterator<Item = &'static ProofCase> {
    cases().filter(move |case| only.is_none_or(|only| case.is_selected(only)))
}

fn report_case(
    case: &ProofCase,
    verdict: AttackVerdict,
    began: Instant,
    report: &mut RedteamReport,
    on_case: &mut (dyn FnMut(&AttackReport) + Send),
) {
    let case_report = case.report(verdict, began);
    on_case(&case_report);
    report.cases.push(case_report);
}

async fn run_case(arena: &mut ProofArena<'_>, payload: &ProofPayload) -> Result<AttackVerdict, AttackVerdict> {
    let project = arena.project(payload.project).await?;
    let commit = project.commit(payload.change)?;
    run_control(project, payload, &commit).await?;
    let failed = |error: ralph_engine::Error| AttackVerdict::Invalid(error.to_string());
    let result = project.trial.run_guarded(&commit, payload.before).await.map_err(failed)?;
    Ok(match payload.expected {
        _ if !result.passed => AttackVerdict::Held,
        ExpectedProof::Flagged(file) if result.files.flags(file) => AttackVerdict::Held,
        ExpectedProof::Named(file) if result.files.mentions(file) => AttackVerdict::Held,
        ExpectedProof::Named(file) | ExpectedProof::Flagged(file) => {
            AttackVerdict::Escaped(format!("the check passed and nothing names `{file}`"))
        }
        ExpectedProof::Refused => AttackVerdict::Escaped("the check passed".to_owned()),
    })
}

/// Shows that the attack works where nothing is held.
async fn run_control(project: &PreparedProject<'_>, payload: &ProofPayload, commit: &str) -> Result<(), AttackVerdict> {
    let result = match payload.control {
        ProofControl::PlainCommand | ProofControl::PlainTracing => {
            let failed = |error: ralph_engine::Error| AttackVerdict::Invalid(error.to_string());
            let control = project.trial.run_unguarded(commit, payload.before).await.map_err(failed)?;
            if control.passed { Ok(()) } else { Err(control.output) }
        }
        ProofControl::Host | ProofControl::HostTracing => {
            // A checkout of its own, which obeys what the commit says about checkouts.
            let checkout =
                format!("rm -rf .git/copy && git clone -q -s . .git/copy && cd .git/copy && git checkout -q {commit}");
            project.run_line(&format!("{checkout} && {}", payload.project.command)).map(drop)
        }
    };
    let needs_tracing = matches!(payload.control, ProofControl::PlainTracing | ProofControl::HostTracing);
    let is_forbidden = || fs::read_to_string(TRACING_SETTING).is_ok_and(|scope| scope.trim() != "0");
    match result {
        Err(_) if needs_tracing && is_forbidden() => {
            Err(AttackVerdict::Skipped(format!("`{TRACING_SETTING}` forbids it everywhere")))
        }
        Err(why) => Err(control_failure(&why)),
        Ok(()) => Ok(()),
    }
}

fn control_failure(why: &str) -> AttackVerdict {
    AttackVerdict::Invalid(format!("it does not work where nothing is held: {}", ralph_core::text::head(why, 300)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_enough_cases() {
        assert!(cases().count() >= 40, "{}", cases().count());
    }
}
