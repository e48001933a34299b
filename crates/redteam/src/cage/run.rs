//! Runs the cases one after the other and decides the verdict of each.

use std::time::Instant;

use ralph_sandbox::embedded::IsolationMechanism;

use super::arena::SandboxArena;
use super::attacked_backend::RedteamTarget;
use super::case::{PayloadAction, PayloadControl, SandboxAttack, SandboxAttackError};
use super::cases::ALL;
use crate::case::{CASE_TIMEOUT, timeout_verdict};
use crate::report::{AttackReport, AttackVerdict, RedteamReport};

/// Returns every attack on a sandbox.
pub fn cases() -> impl Iterator<Item = &'static SandboxAttack> {
    ALL.iter().copied().flatten()
}

/// Runs the selected cases (all without a selection) against a target, and reports each as soon as it has ended.
pub async fn run(
    target: &RedteamTarget<'_>,
    only: Option<&str>,
    on_case: &mut (dyn FnMut(&AttackReport) + Send),
) -> RedteamReport {
    let mut report = RedteamReport { backend: target.name().to_owned(), cases: Vec::new() };
    let mut report_case = |case: &SandboxAttack, verdict: AttackVerdict, began: Instant| {
        let case_report = case.report(verdict, began);
        on_case(&case_report);
        report.cases.push(case_report);
    };
    let selected = cases().filter(|case| only.is_none_or(|only| case.is_selected(only)));
    let arena = match SandboxArena::new(target).await {
        Ok(arena) => arena,
        Err(trouble) => {
            let why = trouble.verdict();
            selected.for_each(|case| report_case(case, why.clone(), Instant::now()));
            return report;
        }
    };
    for case in selected {
        let began = Instant::now();
        let verdict = match tokio::time::timeout(CASE_TIMEOUT, attempt(&arena, case)).await {
            Ok(Ok(verdict)) => verdict,
            Ok(Err(trouble)) => trouble.verdict(),
            Err(_) => timeout_verdict(),
        };
        report_case(case, verdict, began);
    }
    arena.close().await;
    report
}

async fn attempt(arena: &SandboxArena<'_>, case: &SandboxAttack) -> Result<AttackVerdict, SandboxAttackError> {
    if case.payload.landlock > arena.landlock {
        return Ok(AttackVerdict::Skipped(format!("this kernel has no Landlock of version {}", case.payload.landlock)));
    }
    match case.payload.action {
        PayloadAction::Custom(_, steps) => steps(arena, case).await,
        PayloadAction::Line(line, control) => {
            let printed = arena.run_inside(case.payload.without_walls, line).await?;
            if has_got_marker(&printed) {
                return Ok(AttackVerdict::Escaped(shorten(&printed)));
            }
            let there = run_control(arena, case.payload.without_walls, control, line).await?;
            Ok(match control {
                _ if has_got_marker(&there) => AttackVerdict::Held,
                PayloadControl::Without(_) => {
                    AttackVerdict::Invalid(format!("it fails without the mechanism too: {}", shorten(&there)))
                }
                PayloadControl::IfSupported(_, why) => AttackVerdict::Skipped(why.to_owned()),
                PayloadControl::Host => {
                    AttackVerdict::Skipped(format!("it fails on this host too: {}", shorten(&there)))
                }
            })
        }
        PayloadAction::Call(words, refusal, control) => {
            let line = format!("\"$PROBE\" {words}");
            let printed = arena.run_inside(case.payload.without_walls, &line).await?;
            if !is_probe_answer(&printed) {
                return Err(SandboxAttackError::Broken(format!("the probe printed `{}`", shorten(&printed))));
            }
            if printed.trim() != refusal {
                return Ok(AttackVerdict::Escaped(format!("returned `{}` instead of `{refusal}`", shorten(&printed))));
            }
            let there = run_control(arena, case.payload.without_walls, control, &line).await?;
            let other = is_probe_answer(&there) && there.trim() != refusal;
            Ok(match control {
                _ if other => AttackVerdict::Held,
                PayloadControl::Without(_) => {
                    AttackVerdict::Invalid(format!("the result without the mechanism is `{}`", shorten(&there)))
                }
                PayloadControl::IfSupported(_, why) => AttackVerdict::Skipped(why.to_owned()),
                PayloadControl::Host => AttackVerdict::Skipped("this user is refused on the host as well".to_owned()),
            })
        }
    }
}

/// Runs a payload where it must work.
async fn run_control(
    arena: &SandboxArena<'_>,
    off: &[IsolationMechanism],
    control: PayloadControl,
    line: &str,
) -> Result<String, SandboxAttackError> {
    match control {
        PayloadControl::Without(mechanisms) | PayloadControl::IfSupported(mechanisms, _) => {
            arena.run_inside(&off.iter().chain(mechanisms).copied().collect::<Vec<_>>(), line).await
        }
        PayloadControl::Host => arena.run_on_host(line).await,
    }
}

fn has_got_marker(printed: &str) -> bool {
    printed.lines().any(|line| line.starts_with("GOT"))
}

/// Returns whether a text is a valid result of the probe.
fn is_probe_answer(printed: &str) -> bool {
    let printed = printed.trim();
    printed.starts_with("ok") || printed.starts_with("signal") || (printed.starts_with('E') && !printed.contains(' '))
}

fn shorten(printed: &str) -> String {
    ralph_core::text::head(printed.trim(), 200).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_enough_cases() {
        assert!(cases().count() >= 110, "{}", cases().count());
    }

    #[test]
    fn every_mechanism_is_tested() {
        for mechanism in IsolationMechanism::ALL {
            assert!(cases().any(|case| case.mechanisms().contains(&mechanism)), "{mechanism:?}");
        }
    }
}
