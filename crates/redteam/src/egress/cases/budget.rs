//! Attacks on the budget with many calls at once.

use std::time::{Duration, Instant};

use ralph_core::money::MicroUsd;
use ralph_proxy::ledger::{Ledger, LedgerCaps};

use super::super::arena::{EgressArena, ample_ledger};
use super::super::case::{EgressCase, case_verdict, require_control};
use super::super::fake_network::NetworkTrace;
use super::super::policies::PolicyPreset::Strict;
use super::super::recorder::granted_tokens;
use crate::report::AttackVerdict;

/// The number of parallel calls.
const CALLS: usize = 50;
/// The tokens that one call asks for. A token costs a micro-dollar, and the provider uses every one it is granted.
const OUTPUT: u64 = 1_000;
/// Enough for a few of the calls.
const CAP: u64 = 5 * OUTPUT;

pub(super) const CASES: &[EgressCase] = &[
    EgressCase::custom("PC-29.parallel", "many calls at once, with a budget for a few", |arena| {
        Box::pin(parallel(arena))
    }),
    EgressCase::custom("PC-29.spent", "a call after everything is spent", |arena| Box::pin(spent(arena))),
    EgressCase::custom("PC-29.hung-up", "calls whose client hangs up before they are charged", |arena| {
        Box::pin(hung_up(arena))
    }),
];

/// Returns a ledger with this many micro-dollars.
pub(super) fn ledger_with_cap(cap: u64) -> Ledger {
    Ledger::new(LedgerCaps { cost: Some(MicroUsd(cap)), tokens: None }, MicroUsd::ZERO, 0)
}

fn call(last: &str) -> Vec<String> {
    let body =
        format!(r#"{{"model":"canary-model","max_tokens":{OUTPUT},"messages":[{{"role":"user","content":"hello"}}]}}"#);
    let head = format!(
        r"send:POST /r/anthropic/v1/messages HTTP/1.1\r\nHost: x\r\nX-Api-Key: {{model}}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    vec!["proxy".to_owned(), head, last.to_owned()]
}

fn parallel_calls(last: &str) -> Vec<String> {
    std::iter::once(format!("many:{CALLS}")).chain(call(last)).collect()
}

/// Returns what the provider charges for all the calls it received.
fn bill(happened: &NetworkTrace) -> u64 {
    happened.messages.iter().map(|message| granted_tokens(&message.text).unwrap_or(u64::from(u32::MAX)) + 10).sum()
}

async fn parallel(arena: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let ledger = ledger_with_cap(CAP);
    let cage = arena.new_cage(Strict, ledger.clone()).await?;
    let (reply, happened) = arena.run_attack(&cage, &parallel_calls("receive")).await?;
    let _ = cage.sandbox.destroy().await;
    let rich = arena.new_cage(Strict, ample_ledger()).await?;
    let (there, all) = arena.run_attack(&rich, &parallel_calls("receive")).await?;
    let _ = rich.sandbox.destroy().await;
    require_control(there, all.messages.len() == CALLS && bill(&all) > CAP)?;
    let (bill, settled, made) = (bill(&happened), ledger.settled().cost.0, happened.messages.len());
    let refused = reply.matches("HTTP/1.1 402").count();
    require_control(
        format!("{made} calls were made and {refused} refused: {reply}"),
        made > 0 && made + refused == CALLS,
    )?;
    case_verdict(bill > CAP || settled > CAP, format!("billed {bill}, charged {settled} of {CAP}"))
}

async fn spent(arena: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let cage = arena.new_cage(Strict, ledger_with_cap(1)).await?;
    let (reply, happened) = arena.run_attack(&cage, &call("receive")).await?;
    let _ = cage.sandbox.destroy().await;
    let (there, reached) = arena.run_attack(&*arena.shared_cage(Strict).await?, &call("receive")).await?;
    require_control(there, !reached.messages.is_empty())?;
    require_control(&reply, reply.contains("HTTP/1.1 402"))?;
    case_verdict(!happened.is_empty(), happened.summary())
}

/// Checks that every call the provider received is charged, even if the client has hung up.
async fn hung_up(arena: &EgressArena) -> Result<AttackVerdict, AttackVerdict> {
    let mut reply = String::new();
    // Long enough for a call to be made, and short enough that none is answered; a busy machine takes longer.
    for pause in ["pause:40", "pause:80", "pause:160", "pause:320", "pause:640"] {
        let ledger = ledger_with_cap(CAP);
        let cage = arena.new_cage(Strict, ledger.clone()).await?;
        let (output, mut happened) = arena.run_attack(&cage, &parallel_calls(pause)).await?;
        let until = Instant::now() + Duration::from_secs(10);
        while ledger.reserved().cost.0 > 0 && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        happened.messages.extend(arena.network.take_trace().messages);
        let _ = cage.sandbox.destroy().await;
        if !happened.messages.is_empty() {
            let (bill, settled) = (bill(&happened), ledger.settled().cost.0);
            let bad = bill > CAP || settled > CAP || settled < bill;
            return case_verdict(bad, format!("billed {bill}, charged {settled} of {CAP}"));
        }
        reply = output;
    }
    require_control(reply, false)?;
    case_verdict(false, "")
}
