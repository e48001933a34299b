//! Runs the attacks on the way out one after the other and judges each.

use std::time::Instant;

use super::arena::{EgressArena, EgressTarget};
use super::attack_client::SCRIPT_SEPARATOR;
use super::case::{EgressAttack, EgressCase, EgressControl, ExpectedEffect, case_verdict, require_control, shortened};
use super::cases::ALL;
use super::fake_network::NetworkTrace;
use crate::case::{CASE_TIMEOUT, timeout_verdict};
use crate::report::{AttackReport, AttackVerdict, RedteamReport};

/// So many attacks are made in one go.
const BATCH_SIZE: usize = 12;

/// Returns every attack on the way out.
pub fn cases() -> impl Iterator<Item = &'static EgressCase> {
    ALL.iter().copied().flatten()
}

/// Says why no case can be tried, for a backend whose doors cannot be served by a world of the suite's own.
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

/// Runs the cases a choice means (all without one), telling each as soon as it is known.
pub async fn run(
    target: &EgressTarget,
    only: Option<&str>,
    report: &mut RedteamReport,
    on_case: &mut (dyn FnMut(&AttackReport) + Send),
) {
    if selected_cases(only).next().is_none() {
        return;
    }
    let ground = match EgressArena::new(target).await {
        Ok(ground) => ground,
        Err(why) => {
            for case in selected_cases(only) {
                report_case(case, why.clone(), Instant::now(), report, on_case);
            }
            return;
        }
    };
    let meant: Vec<&EgressCase> = selected_cases(only).collect();
    for cases in meant.chunk_by(|one, other| can_batch(one, other)).flat_map(|alike| alike.chunks(BATCH_SIZE)) {
        let began = Instant::now();
        let mut told = run_batch(&ground, cases).await;
        // What each of them took is not known; all of them together did.
        let share = began.elapsed() / u32::try_from(cases.len()).unwrap_or(1);
        told.reverse();
        for case in cases {
            let began = Instant::now();
            let attempt = run_case(&ground, case, told.pop());
            let verdict = match tokio::time::timeout(CASE_TIMEOUT, attempt).await {
                Ok(verdict) => verdict.unwrap_or_else(|verdict| verdict),
                Err(_) => timeout_verdict(),
            };
            report_case(case, verdict, began.checked_sub(share).unwrap_or(began), report, on_case);
        }
    }
    ground.close().await;
}

fn selected_cases(only: Option<&str>) -> impl Iterator<Item = &'static EgressCase> {
    cases().filter(move |case| only.is_none_or(|only| case.is_selected(only)))
}

fn report_case(
    case: &EgressCase,
    verdict: AttackVerdict,
    began: Instant,
    report: &mut RedteamReport,
    on_case: &mut (dyn FnMut(&AttackReport) + Send),
) {
    let told = case.report(verdict, began);
    on_case(&told);
    report.cases.push(told);
}

/// Says whether two attacks are made under the same rules, and must both come to nothing.
fn can_batch(one: &EgressCase, other: &EgressCase) -> bool {
    let rules = |case: &EgressCase| match case.payload.0 {
        EgressAttack::Script { rules, want: ExpectedEffect::NoTraffic(_), .. } => Some(rules),
        _ => None,
    };
    rules(one).is_some() && rules(one) == rules(other)
}

/// Makes attacks that must come to nothing one after the other in one go, and returns what each was told. Where
/// anything at all happened in the world nothing is returned: each has to be made on its own.
async fn run_batch(ground: &EgressArena, cases: &[&EgressCase]) -> Vec<String> {
    let (Some(EgressAttack::Script { rules, .. }), true) = (cases.first().map(|case| case.payload.0), cases.len() > 1)
    else {
        return Vec::new();
    };
    let mut words = Vec::new();
    for case in cases {
        if let EgressAttack::Script { words: own, .. } = case.payload.0 {
            words.extend_from_slice(own);
            words.push(SCRIPT_SEPARATOR);
        }
    }
    words.pop();
    let all = async {
        let cage = ground.shared_cage(rules).await?;
        ground.run_attack(&cage, &words).await
    };
    match tokio::time::timeout(CASE_TIMEOUT, all).await {
        Ok(Ok((told, happened))) if happened.is_empty() => {
            let told: Vec<String> = told.split(SCRIPT_SEPARATOR).map(str::to_owned).collect();
            if told.len() == cases.len() { told } else { Vec::new() }
        }
        _ => Vec::new(),
    }
}

/// Makes an attack and judges it; `told` is what it was told when it was made with others and came to nothing.
async fn run_case(
    ground: &EgressArena,
    case: &EgressCase,
    told: Option<String>,
) -> Result<AttackVerdict, AttackVerdict> {
    let (rules, words, want, proof) = match case.payload.0 {
        EgressAttack::Custom(steps) => return steps(ground).await,
        EgressAttack::Script { rules, words, want, control } => (rules, words, want, control),
    };
    let (told, happened) = match told {
        Some(told) => (told, NetworkTrace::default()),
        None => ground.run_attack(&*ground.shared_cage(rules).await?, words).await?,
    };
    let (escaped, says) = match want {
        ExpectedEffect::NoTraffic(says) => (!happened.is_empty(), says),
        ExpectedEffect::NoMessage(says) => (!happened.messages.is_empty(), says),
    };
    if escaped {
        return case_verdict(true, format!("{} and was told {told}", happened.summary()));
    }
    if !says.split('|').any(|says| told.contains(says)) {
        return Err(AttackVerdict::Invalid(format!("nobody said `{says}`: {}", shortened(&told))));
    }
    run_control(ground, words, proof).await?;
    case_verdict(false, "")
}

/// Shows that the attack would be seen if it worked.
async fn run_control(ground: &EgressArena, words: &[&str], proof: EgressControl) -> Result<(), AttackVerdict> {
    let key = match proof {
        EgressControl::Same(_) => format!("{proof:?} {words:?}"),
        _ => format!("{proof:?}"),
    };
    if ground.has_passed_control(&key) {
        return Ok(());
    }
    let reached =
        |(told, happened): (String, NetworkTrace)| require_control(shortened(&told), !happened.messages.is_empty());
    match proof {
        EgressControl::Same(rules) => reached(ground.run_attack(&*ground.shared_cage(rules).await?, words).await?)?,
        EgressControl::Other(rules, words) => {
            reached(ground.run_attack(&*ground.shared_cage(rules).await?, words).await?)?;
        }
        EgressControl::Says(rules, words, says) => {
            let told = ground.run_client(&*ground.shared_cage(rules).await?, words).await?;
            require_control(shortened(&told), told.contains(says))?;
        }
        EgressControl::Host(words) => reached(ground.run_on_host(words).await?)?,
    }
    ground.mark_control_passed(key);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_many() {
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
            assert!(cases().any(|case| case.is_selected(number)), "{number}");
        }
    }
}
