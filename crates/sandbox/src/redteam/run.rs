//! Runs the cases one after the other and judges each.

use std::time::{Duration, Instant};

use super::case::{Attack, Case, Control, Trouble};
use super::cases::ALL;
use super::range::Range;
use super::report::{CaseReport, Report, Verdict};
use super::target::Target;
use crate::embedded::Wall;

/// A case that takes longer hangs, and must not stop the others.
const PATIENCE: Duration = Duration::from_mins(1);

/// Returns every attack there is.
pub fn cases() -> impl Iterator<Item = &'static Case> {
    ALL.iter().copied().flatten()
}

/// Runs the cases a choice means (all without one) against a target, telling each as soon as it is known.
pub async fn run(target: &Target<'_>, only: Option<&str>, on_case: &mut (dyn FnMut(&CaseReport) + Send)) -> Report {
    let mut report = Report { backend: target.name().to_owned(), cases: Vec::new() };
    let mut tell = |case: &Case, verdict: Verdict, began: Instant| {
        let told = CaseReport {
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
    let meant = cases().filter(|case| only.is_none_or(|only| case.is_meant(only)));
    let range = match Range::new(target).await {
        Ok(range) => range,
        Err(trouble) => {
            let why = trouble.verdict();
            meant.for_each(|case| tell(case, why.clone(), Instant::now()));
            return report;
        }
    };
    for case in meant {
        let began = Instant::now();
        let verdict = match tokio::time::timeout(PATIENCE, attempt(&range, case)).await {
            Ok(Ok(verdict)) => verdict,
            Ok(Err(trouble)) => trouble.verdict(),
            Err(_) => Verdict::Invalid(format!("did not end within {PATIENCE:?}")),
        };
        tell(case, verdict, began);
    }
    range.close().await;
    report
}

async fn attempt(range: &Range<'_>, case: &Case) -> Result<Verdict, Trouble> {
    if case.landlock > range.landlock {
        return Ok(Verdict::Skipped(format!("this kernel has no Landlock of version {}", case.landlock)));
    }
    match case.attack {
        Attack::Own(_, steps) => steps(range, case).await,
        Attack::Line(line, control) => {
            let told = range.inside(case.off, line).await?;
            if is_got(&told) {
                return Ok(Verdict::Escaped(short(&told)));
            }
            let there = elsewhere(range, case.off, control, line).await?;
            Ok(match control {
                _ if is_got(&there) => Verdict::Held,
                Control::Without(_) => Verdict::Invalid(format!("it fails without the wall too: {}", short(&there))),
                Control::Maybe(_, why) => Verdict::Skipped(why.to_owned()),
                Control::Host => Verdict::Skipped(format!("it fails on this host too: {}", short(&there))),
            })
        }
        Attack::Call(words, refusal, control) => {
            let line = format!("\"$PROBE\" {words}");
            let told = range.inside(case.off, &line).await?;
            if !is_answer(&told) {
                return Err(Trouble::Broken(format!("the probe says `{}`", short(&told))));
            }
            if told.trim() != refusal {
                return Ok(Verdict::Escaped(format!("answered `{}` instead of `{refusal}`", short(&told))));
            }
            let there = elsewhere(range, case.off, control, &line).await?;
            let other = is_answer(&there) && there.trim() != refusal;
            Ok(match control {
                _ if other => Verdict::Held,
                Control::Without(_) => Verdict::Invalid(format!("the answer without the wall is `{}`", short(&there))),
                Control::Maybe(_, why) => Verdict::Skipped(why.to_owned()),
                Control::Host => Verdict::Skipped("this user is refused on the host as well".to_owned()),
            })
        }
    }
}

/// Runs a payload where it must work.
async fn elsewhere(range: &Range<'_>, off: &[Wall], control: Control, line: &str) -> Result<String, Trouble> {
    match control {
        Control::Without(walls) | Control::Maybe(walls, _) => {
            range.inside(&off.iter().chain(walls).copied().collect::<Vec<_>>(), line).await
        }
        Control::Host => range.outside(line).await,
    }
}

fn is_got(told: &str) -> bool {
    told.lines().any(|line| line.starts_with("GOT"))
}

/// Returns whether a text is an answer of the probe at all.
fn is_answer(told: &str) -> bool {
    let told = told.trim();
    told.starts_with("ok") || told.starts_with("signal") || (told.starts_with('E') && !told.contains(' '))
}

fn short(told: &str) -> String {
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
        for wall in Wall::ALL {
            assert!(cases().any(|case| case.walls().contains(&wall)), "{wall:?}");
        }
    }
}
