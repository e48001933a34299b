//! Runs the attacks on the egress proxy one after the other and decides the verdict of each.

use std::time::Instant;

use super::arena::{EgressArena, EgressSuiteOptions};
use super::attack_client::SCRIPT_SEPARATOR;
use super::case::{EgressAttack, EgressCase, EgressControl, ExpectedEffect, case_verdict, require_control, shortened};
use super::cases::ALL;
use super::fake_network::NetworkTrace;
use crate::case::{CASE_TIMEOUT, timeout_verdict};
use crate::report::{AttackReport, AttackVerdict, RedteamReport};

/// The most attacks in one batch.
const BATCH_SIZE: usize = 12;

/// Returns every attack on the egress proxy.
pub fn cases() -> impl Iterator<Item = &'static EgressCase> {
    ALL.iter().copied().flatten()
}

/// Skips all selected cases with a reason, for a backend whose listeners cannot be served by the fake network.
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
    target: &EgressSuiteOptions,
    only: Option<&str>,
    report: &mut RedteamReport,
    on_case: &mut (dyn FnMut(&AttackReport) + Send),
) {
    if selected_cases(only).next().is_none() {
        return;
    }
    let arena = match EgressArena::new(target).await {
        Ok(arena) => arena,
        Err(why) => {
            for case in selected_cases(only) {
                report_case(case, why.clone(), Instant::now(), report, on_case);
            }
            return;
        }
    };
    let selected: Vec<&EgressCase> = selected_cases(only).collect();
    for cases in selected.chunk_by(|one, other| can_batch(one, other)).flat_map(|alike| alike.chunks(BATCH_SIZE)) {
        let began = Instant::now();
        let mut outputs = run_batch(&arena, cases).await;
        // Only the time of the whole batch is known, so it is divided evenly.
        let share = began.elapsed() / u32::try_from(cases.len()).unwrap_or(1);
        outputs.reverse();
        for case in cases {
            let began = Instant::now();
            let attempt = run_case(&arena, case, outputs.pop());
            let verdict = match tokio::time::timeout(CASE_TIMEOUT, attempt).await {
                Ok(verdict) => verdict.unwrap_or_else(|verdict| verdict),
                Err(_) => timeout_verdict(),
            };
            report_case(case, verdict, began.checked_sub(share).unwrap_or(began), report, on_case);
        }
    }
    arena.close().await;
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
    let case_report = case.report(verdict, began);
    on_case(&case_report);
    report.cases.push(case_report);
}

/// Returns whether two attacks run under the same policy, and both must cause no traffic.
fn can_batch(one: &EgressCase, other: &EgressCase) -> bool {
    let rules = |case: &EgressCase| match case.payload.0 {
        EgressAttack::Script { rules, want: ExpectedEffect::NoTraffic(_), .. } => Some(rules),
        _ => None,
    };
    rules(one).is_some() && rules(one) == rules(other)
}

/// Runs attacks that must cause no traffic as one batch, and returns the client's output for each. Returns nothing if
/// there was any traffic: then each attack has to run on its own.
async fn run_batch(arena: &EgressArena, cases: &[&EgressCase]) -> Vec<String> {
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
        let cage = arena.shared_cage(rules).await?;
        arena.run_attack(&cage, &words).await
    };
    match tokio::time::timeout(CASE_TIMEOUT, all).await {
        Ok(Ok((reply, happened))) if happened.is_empty() => {
            let outputs: Vec<String> = reply.split(SCRIPT_SEPARATOR).map(str::to_owned).collect();
            if outputs.len() == cases.len() { outputs } else { Vec::new() }
        }
        _ => Vec::new(),
    }
}

/// Runs an attack and decides its verdict; `output` is the client's output if the attack already ran in a batch
/// without traffic.
async fn run_case(
    arena: &EgressArena,
    case: &EgressCase,
    output: Option<String>,
) -> Result<AttackVerdict, AttackVerdict> {
    let (rules, words, want, proof) = match case.payload.0 {
        EgressAttack::Custom(steps) => return steps(arena).await,
        EgressAttack::Script { rules, words, want, control } => (rules, words, want, control),
    };
    let (reply, happened) = match output {
        Some(reply) => (reply, NetworkTrace::default()),
        None => arena.run_attack(&*arena.shared_cage(rules).await?, words).await?,
    };
    let (escaped, says) = match want {
        ExpectedEffect::NoTraffic(says) => (!happened.is_empty(), says),
        ExpectedEffect::NoMessage(says) => (!happened.messages.is_empty(), says),
    };
    if escaped {
        return case_verdict(true, format!("{} and the client got {reply}", happened.summary()));
    }
    if !says.split('|').any(|says| reply.contains(says)) {
        return Err(AttackVerdict::Invalid(format!("no component answered `{says}`: {}", shortened(&reply))));
    }
    run_control(arena, words, proof).await?;
    case_verdict(false, "")
}

/// Shows that the attack would be detected if it worked.
async fn run_control(arena: &EgressArena, words: &[&str], proof: EgressControl) -> Result<(), AttackVerdict> {
    let key = match proof {
        EgressControl::Same(_) => format!("{proof:?} {words:?}"),
        _ => format!("{proof:?}"),
    };
    if arena.has_passed_control(&key) {
        return Ok(());
    }
    let reached =
        |(reply, happened): (String, NetworkTrace)| require_control(shortened(&reply), !happened.messages.is_empty());
    match proof {
        EgressControl::Same(rules) => reached(arena.run_attack(&*arena.shared_cage(rules).await?, words).await?)?,
        EgressControl::Other(rules, words) => {
            reached(arena.run_attack(&*arena.shared_cage(rules).await?, words).await?)?;
        }
        EgressControl::Says(rules, words, says) => {
            let reply = arena.run_client(&*arena.shared_cage(rules).await?, words).await?;
            require_control(shortened(&reply), reply.contains(says))?;
        }
        EgressControl::Host(words) => reached(arena.run_on_host(words).await?)?,
    }
    arena.mark_control_passed(key);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_enough_cases() {
        assert!(cases().count() >= 150, "{}", cases().count());
    }

    #[test]
    fn every_numbered_attack_has_a_case() {
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
