//! Runs the cases one after the other and judges each.

use std::time::{Duration, Instant};

use super::arena::SandboxArena;
use super::case::{PayloadControl, SandboxAttack, SandboxAttackError, SandboxPayload};
use super::cases::ALL;
use super::report::{AttackReport, AttackVerdict, RedteamReport};
use super::target::RedteamTarget;
use crate::embedded::IsolationMechanism;

/// A case that takes longer hangs, and must not stop the others.
const CASE_TIMEOUT: Duration = Duration::from_mins(1);

/// Returns every attack there is.
pub fn cases() -> impl Iterator<Item = &'static SandboxAttack> {
    ALL.iter().copied().flatten()
}

/// Returns whether a person's choice means any case.
pub fn selects_any(only: &str) -> bool {
    cases().any(|case| case.is_selected(only))
}

/// Runs the cases a choice means (all without one) against a target, telling each as soon as it is known.
pub async fn run(
    target: &RedteamTarget<'_>,
    only: Option<&str>,
    on_case: &mut (dyn FnMut(&AttackReport) + Send),
) -> RedteamReport {
    let mut report = RedteamReport { backend: target.name().to_owned(), cases: Vec::new() };
    let mut tell = |case: &SandboxAttack, verdict: AttackVerdict, began: Instant| {
        let told = AttackReport {
            id: case.id,
            area: case.area(),
            name: case.name,
            verdict,
            walls: case.walls().to_vec(),
            millis: u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
        };
        on_case(&told);
        report.cases.push(told);
    };
    let meant = cases().filter(|case| only.is_none_or(|only| case.is_selected(only)));
    let range = match SandboxArena::new(target).await {
        Ok(range) => range,
        Err(trouble) => {
            let why = trouble.verdict();
            meant.for_each(|case| tell(case, why.clone(), Instant::now()));
            return report;
        }
    };
    for case in meant {
        let began = Instant::now();
        let verdict = match tokio::time::timeout(CASE_TIMEOUT, attempt(&range, case)).await {
            Ok(Ok(verdict)) => verdict,
            Ok(Err(trouble)) => trouble.verdict(),
            Err(_) => AttackVerdict::Invalid(format!("did not end within {CASE_TIMEOUT:?}")),
        };
        tell(case, verdict, began);
    }
    range.close().await;
    report
}

async fn attempt(range: &SandboxArena<'_>, case: &SandboxAttack) -> Result<AttackVerdict, SandboxAttackError> {
    if case.landlock > range.landlock {
        return Ok(AttackVerdict::Skipped(format!("this kernel has no Landlock of version {}", case.landlock)));
    }
    match case.attack {
        SandboxPayload::Custom(_, steps) => steps(range, case).await,
        SandboxPayload::Line(line, control) => {
            let told = range.run_inside(case.without_walls, line).await?;
            if has_got_marker(&told) {
                return Ok(AttackVerdict::Escaped(shorten(&told)));
            }
            let there = run_control(range, case.without_walls, control, line).await?;
            Ok(match control {
                _ if has_got_marker(&there) => AttackVerdict::Held,
                PayloadControl::Without(_) => {
                    AttackVerdict::Invalid(format!("it fails without the wall too: {}", shorten(&there)))
                }
                PayloadControl::IfSupported(_, why) => AttackVerdict::Skipped(why.to_owned()),
                PayloadControl::Host => {
                    AttackVerdict::Skipped(format!("it fails on this host too: {}", shorten(&there)))
                }
            })
        }
        SandboxPayload::Call(words, refusal, control) => {
            let line = format!("\"$PROBE\" {words}");
            let told = range.run_inside(case.without_walls, &line).await?;
            if !is_probe_answer(&told) {
                return Err(SandboxAttackError::Broken(format!("the probe says `{}`", shorten(&told))));
            }
            if told.trim() != refusal {
                return Ok(AttackVerdict::Escaped(format!("answered `{}` instead of `{refusal}`", shorten(&told))));
            }
            let there = run_control(range, case.without_walls, control, &line).await?;
            let other = is_probe_answer(&there) && there.trim() != refusal;
            Ok(match control {
                _ if other => AttackVerdict::Held,
                PayloadControl::Without(_) => {
                    AttackVerdict::Invalid(format!("the answer without the wall is `{}`", shorten(&there)))
                }
                PayloadControl::IfSupported(_, why) => AttackVerdict::Skipped(why.to_owned()),
                PayloadControl::Host => AttackVerdict::Skipped("this user is refused on the host as well".to_owned()),
            })
        }
    }
}

/// Runs a payload where it must work.
async fn run_control(
    range: &SandboxArena<'_>,
    off: &[IsolationMechanism],
    control: PayloadControl,
    line: &str,
) -> Result<String, SandboxAttackError> {
    match control {
        PayloadControl::Without(walls) | PayloadControl::IfSupported(walls, _) => {
            range.run_inside(&off.iter().chain(walls).copied().collect::<Vec<_>>(), line).await
        }
        PayloadControl::Host => range.run_on_host(line).await,
    }
}

fn has_got_marker(told: &str) -> bool {
    told.lines().any(|line| line.starts_with("GOT"))
}

/// Returns whether a text is an answer of the probe at all.
fn is_probe_answer(told: &str) -> bool {
    let told = told.trim();
    told.starts_with("ok") || told.starts_with("signal") || (told.starts_with('E') && !told.contains(' '))
}

fn shorten(told: &str) -> String {
    ralph_core::text::head(told.trim(), 200).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_unique_and_there_are_many() {
        let mut ids: Vec<&str> = cases().map(|case| case.id).collect();
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), count);
        assert!(count >= 110, "{count}");
    }

    #[test]
    fn every_wall_is_watched() {
        for wall in IsolationMechanism::ALL {
            assert!(cases().any(|case| case.walls().contains(&wall)), "{wall:?}");
        }
    }
}
