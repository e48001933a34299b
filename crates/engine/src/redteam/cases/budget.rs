//! Spending more than there is, by asking for everything at once.

use std::time::{Duration, Instant};

use ralph_core::money::Micros;
use ralph_proxy::ledger::{Caps, Ledger};
use ralph_sandbox::redteam::Verdict;

use super::super::case::{Case, control, judged};
use super::super::ground::{Ground, plenty};
use super::super::rules::Rules::Strict;
use super::super::upstream::granted;
use super::super::world::Happened;

/// Calls at the same moment.
const CALLS: usize = 50;
/// What one of them asks for. A token costs a micro-dollar, and the provider uses every one it is granted.
const OUTPUT: u64 = 1_000;
/// Room for a few of them.
const CAP: u64 = 5 * OUTPUT;

pub(super) const CASES: &[Case] = &[
    Case::own("PC-29.parallel", "many calls at once, with room for a few", |ground| Box::pin(parallel(ground))),
    Case::own("PC-29.spent", "a call after everything is spent", |ground| Box::pin(spent(ground))),
    Case::own("PC-29.hung-up", "calls that hang up before they are charged", |ground| Box::pin(hung_up(ground))),
];

/// A book with so many micro-dollars in it.
pub(super) fn book(cap: u64) -> Ledger {
    Ledger::new(Caps { cost: Some(Micros(cap)), tokens: None }, Micros::ZERO, 0)
}

fn call(last: &str) -> Vec<String> {
    let body =
        format!(r#"{{"model":"canary-model","max_tokens":{OUTPUT},"messages":[{{"role":"user","content":"hello"}}]}}"#);
    let head = format!(
        r"say:POST /r/anthropic/v1/messages HTTP/1.1\r\nHost: x\r\nX-Api-Key: {{model}}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    vec!["door".to_owned(), head, last.to_owned()]
}

fn many(last: &str) -> Vec<String> {
    std::iter::once(format!("many:{CALLS}")).chain(call(last)).collect()
}

/// What the provider charges for all it heard.
fn bill(happened: &Happened) -> u64 {
    happened.heard.iter().map(|heard| granted(&heard.text).unwrap_or(u64::from(u32::MAX)) + 10).sum()
}

async fn parallel(ground: &Ground) -> Result<Verdict, Verdict> {
    let ledger = book(CAP);
    let cage = ground.fresh(Strict, ledger.clone()).await?;
    let (told, happened) = ground.attack(&cage, &many("hear")).await?;
    let _ = cage.sandbox.destroy().await;
    let rich = ground.fresh(Strict, plenty()).await?;
    let (there, all) = ground.attack(&rich, &many("hear")).await?;
    let _ = rich.sandbox.destroy().await;
    control(there, all.heard.len() == CALLS && bill(&all) > CAP)?;
    let (bill, settled, made) = (bill(&happened), ledger.settled().cost.0, happened.heard.len());
    let refused = told.matches("HTTP/1.1 402").count();
    control(format!("{made} calls were made and {refused} refused: {told}"), made > 0 && made + refused == CALLS)?;
    judged(bill > CAP || settled > CAP, format!("billed {bill}, charged {settled} of {CAP}"))
}

async fn spent(ground: &Ground) -> Result<Verdict, Verdict> {
    let cage = ground.fresh(Strict, book(1)).await?;
    let (told, happened) = ground.attack(&cage, &call("hear")).await?;
    let _ = cage.sandbox.destroy().await;
    let (there, reached) = ground.attack(&*ground.cage(Strict).await?, &call("hear")).await?;
    control(there, !reached.heard.is_empty())?;
    control(&told, told.contains("HTTP/1.1 402"))?;
    judged(!happened.is_nothing(), happened.shown())
}

/// What the provider heard is charged, whoever still listens.
async fn hung_up(ground: &Ground) -> Result<Verdict, Verdict> {
    let mut told = String::new();
    // Long enough for a call to be made, and short enough for none to be answered; a busy machine takes longer.
    for pause in ["pause:40", "pause:80", "pause:160", "pause:320", "pause:640"] {
        let ledger = book(CAP);
        let cage = ground.fresh(Strict, ledger.clone()).await?;
        let (said, mut happened) = ground.attack(&cage, &many(pause)).await?;
        let until = Instant::now() + Duration::from_secs(10);
        while ledger.reserved().cost.0 > 0 && Instant::now() < until {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        happened.heard.extend(ground.world.happened().heard);
        let _ = cage.sandbox.destroy().await;
        if !happened.heard.is_empty() {
            let (bill, settled) = (bill(&happened), ledger.settled().cost.0);
            let bad = bill > CAP || settled > CAP || settled < bill;
            return judged(bad, format!("billed {bill}, charged {settled} of {CAP}"));
        }
        told = said;
    }
    control(told, false)?;
    judged(false, "")
}
