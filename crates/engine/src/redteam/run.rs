//! Runs the attacks on the way out one after the other and judges each.

use std::ffi::OsStr;
use std::time::{Duration, Instant};

use ralph_sandbox::redteam::{CaseReport, Report, Verdict};

use super::caller::NEXT;
use super::case::{Attack, Case, Control, Want, control, judged, short};
use super::cases::ALL;
use super::ground::Ground;
use super::world::Happened;

/// A case that takes longer hangs, and must not stop the others.
const PATIENCE: Duration = Duration::from_mins(1);
/// So many attacks are made in one go.
const TOGETHER: usize = 12;

/// Returns every attack on the way out.
pub fn cases() -> impl Iterator<Item = &'static Case> {
    ALL.iter().copied().flatten()
}

/// Says why no case can be tried, for a backend whose doors cannot be served by a world of the suite's own.
pub fn skip(why: &str, only: Option<&str>, report: &mut Report, on_case: &mut (dyn FnMut(&CaseReport) + Send)) {
    for case in meant(only) {
        tell(case, Verdict::Skipped(why.to_owned()), Instant::now(), report, on_case);
    }
}

/// Runs the cases a choice means (all without one), telling each as soon as it is known. `path` is where the host's
/// programs are.
pub async fn run(path: &OsStr, only: Option<&str>, report: &mut Report, on_case: &mut (dyn FnMut(&CaseReport) + Send)) {
    if meant(only).next().is_none() {
        return;
    }
    let ground = match Ground::new(path).await {
        Ok(ground) => ground,
        Err(why) => {
            for case in meant(only) {
                tell(case, why.clone(), Instant::now(), report, on_case);
            }
            return;
        }
    };
    let meant: Vec<&Case> = meant(only).collect();
    for cases in meant.chunk_by(|one, other| is_alike(one, other)).flat_map(|alike| alike.chunks(TOGETHER)) {
        let began = Instant::now();
        let mut told = together(&ground, cases).await;
        // What each of them took is not known; all of them together did.
        let share = began.elapsed() / u32::try_from(cases.len()).unwrap_or(1);
        told.reverse();
        for case in cases {
            let began = Instant::now();
            let attempt = attempt(&ground, case, told.pop());
            let verdict = match tokio::time::timeout(PATIENCE, attempt).await {
                Ok(verdict) => verdict.unwrap_or_else(|verdict| verdict),
                Err(_) => Verdict::Invalid(format!("did not end within {PATIENCE:?}")),
            };
            tell(case, verdict, began.checked_sub(share).unwrap_or(began), report, on_case);
        }
    }
    ground.close().await;
}

fn meant(only: Option<&str>) -> impl Iterator<Item = &'static Case> {
    cases().filter(move |case| only.is_none_or(|only| case.is_meant(only)))
}

fn tell(
    case: &Case,
    verdict: Verdict,
    began: Instant,
    report: &mut Report,
    on_case: &mut (dyn FnMut(&CaseReport) + Send),
) {
    let millis = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
    let told = CaseReport { id: case.id, area: case.area(), name: case.name, verdict, walls: Vec::new(), millis };
    on_case(&told);
    report.cases.push(told);
}

/// Says whether two attacks are made under the same rules, and must both come to nothing.
fn is_alike(one: &Case, other: &Case) -> bool {
    let rules = |case: &Case| match case.attack {
        Attack::Words { rules, want: Want::Nothing(_), .. } => Some(rules),
        _ => None,
    };
    rules(one).is_some() && rules(one) == rules(other)
}

/// Makes attacks that must come to nothing one after the other in one go, and returns what each was told. Where
/// anything at all happened in the world nothing is returned: each has to be made on its own.
async fn together(ground: &Ground, cases: &[&Case]) -> Vec<String> {
    let (Some(Attack::Words { rules, .. }), true) = (cases.first().map(|case| case.attack), cases.len() > 1) else {
        return Vec::new();
    };
    let mut words = Vec::new();
    for case in cases {
        if let Attack::Words { words: own, .. } = case.attack {
            words.extend_from_slice(own);
            words.push(NEXT);
        }
    }
    words.pop();
    let all = async {
        let cage = ground.cage(rules).await?;
        ground.attack(&cage, &words).await
    };
    match tokio::time::timeout(PATIENCE, all).await {
        Ok(Ok((told, happened))) if happened.is_nothing() => {
            let told: Vec<String> = told.split(NEXT).map(str::to_owned).collect();
            if told.len() == cases.len() { told } else { Vec::new() }
        }
        _ => Vec::new(),
    }
}

/// Makes an attack and judges it; `told` is what it was told when it was made with others and came to nothing.
async fn attempt(ground: &Ground, case: &Case, told: Option<String>) -> Result<Verdict, Verdict> {
    let (rules, words, want, proof) = match case.attack {
        Attack::Own(steps) => return steps(ground).await,
        Attack::Words { rules, words, want, control } => (rules, words, want, control),
    };
    let (told, happened) = match told {
        Some(told) => (told, Happened::default()),
        None => ground.attack(&*ground.cage(rules).await?, words).await?,
    };
    let (escaped, says) = match want {
        Want::Nothing(says) => (!happened.is_nothing(), says),
        Want::Silence(says) => (!happened.heard.is_empty(), says),
    };
    if escaped {
        return judged(true, format!("{} and was told {told}", happened.shown()));
    }
    if !says.split('|').any(|says| told.contains(says)) {
        return Err(Verdict::Invalid(format!("nobody said `{says}`: {}", short(&told))));
    }
    prove(ground, words, proof).await?;
    judged(false, "")
}

/// Shows that the attack would be seen if it worked.
async fn prove(ground: &Ground, words: &[&str], proof: Control) -> Result<(), Verdict> {
    let key = match proof {
        Control::Same(_) => format!("{proof:?} {words:?}"),
        _ => format!("{proof:?}"),
    };
    if ground.was_shown(&key) {
        return Ok(());
    }
    let reached = |(told, happened): (String, Happened)| control(short(&told), !happened.heard.is_empty());
    match proof {
        Control::Same(rules) => reached(ground.attack(&*ground.cage(rules).await?, words).await?)?,
        Control::Other(rules, words) => reached(ground.attack(&*ground.cage(rules).await?, words).await?)?,
        Control::Says(rules, words, says) => {
            let told = ground.call(&*ground.cage(rules).await?, words).await?;
            control(short(&told), told.contains(says))?;
        }
        Control::Host(words) => reached(ground.outside(words).await?)?,
    }
    ground.show(key);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_unique_and_there_are_many() {
        let mut ids: Vec<&str> =
            cases().map(|case| case.id).chain(ralph_sandbox::redteam::cases().map(|case| case.id)).collect();
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), count);
        assert!(cases().count() >= 150, "{}", cases().count());
    }

    #[test]
    fn every_number_of_the_tables_is_tried() {
        for number in [
            "NE-01", "NE-02", "NE-03", "NE-04", "NE-05", "NE-06", "NE-07", "NE-14", "NE-18", "NE-19", "DN-01", "DN-02",
            "DN-03", "DN-04", "DN-05", "DN-06", "DN-08", "DN-10", "DN-12", "PC-01", "PC-02", "PC-03", "PC-04", "PC-05",
            "PC-06", "PC-07", "PC-08", "PC-11", "PC-12", "PC-13", "PC-16", "PC-17", "PC-19", "PC-21", "PC-22", "PC-23",
            "PC-24", "PC-25", "PC-26", "PC-27", "PC-29", "PC-31", "PC-32", "PC-33",
        ] {
            assert!(cases().any(|case| case.is_meant(number)), "{number}");
        }
    }
}
