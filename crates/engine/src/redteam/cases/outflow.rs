//! Carrying away a lot by ways that are allowed: nobody can look into a tunnel, but its size can be noticed.

use ralph_core::event::Event;
use ralph_sandbox::redteam::Verdict;

use super::super::case::{Case, control, judged};
use super::super::ground::{Cage, Ground};
use super::super::rules::Rules::Strict;
use crate::egress::Pass;

/// More than this raises an alarm.
const LIMIT: u64 = 100_000;

pub(super) const CASES: &[Case] = &[
    Case::own("PC-33.tunnel", "a lot through one tunnel", |ground| {
        Box::pin(noticed(
            ground,
            &[
                "connect:allowed.test:443",
                "tls:allowed.test",
                r"say:PUT / HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 300000\r\n\r\n",
                "pad:300000:a",
                "hear",
            ],
        ))
    }),
    Case::own("PC-33.pieces", "a lot in many small tunnels", |ground| {
        Box::pin(noticed(
            ground,
            &[
                "many:30",
                "connect:allowed.test:443",
                "tls:allowed.test",
                r"say:PUT / HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 5000\r\n\r\n",
                "pad:5000:a",
                "hear",
            ],
        ))
    }),
    Case::own("PC-33.named", "a lot by a connection that knows of no proxy", |ground| {
        Box::pin(noticed(
            ground,
            &[
                "name:allowed.test:443",
                "tls:allowed.test",
                r"say:PUT / HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 300000\r\n\r\n",
                "pad:300000:a",
                "hear",
            ],
        ))
    }),
    Case::own("PC-33.request", "a lot in a request", |ground| {
        Box::pin(noticed(
            ground,
            &[
                "door",
                r"say:PUT http://plain.test/ HTTP/1.1\r\nHost: plain.test\r\nContent-Length: 300000\r\n\r\n",
                "pad:300000:a",
                "hear",
            ],
        ))
    }),
];

/// Carries something away; returns what was heard outside, and how often an alarm was raised.
async fn carried(ground: &Ground, cage: &Cage, words: &[&str]) -> Result<(usize, usize), Verdict> {
    let (_, happened) = ground.attack(cage, words).await?;
    let told = cage.agreed(Pass::heard).unwrap_or_default();
    let alarm = |event: &&Event| matches!(event, Event::Log { text, .. } if text.contains("has sent out more than"));
    Ok((happened.heard.len(), told.others.iter().filter(alarm).count()))
}

/// It arrives in any case. Without a limit nobody notices, which is what the limit is for; with one it is told, once.
async fn noticed(ground: &Ground, words: &[&str]) -> Result<Verdict, Verdict> {
    let careless = ground.watched(Strict, None).await?;
    let (heard, alarms) = carried(ground, &careless, words).await?;
    let _ = careless.sandbox.destroy().await;
    control(format!("heard {heard}, alarms without a limit {alarms}"), heard > 0 && alarms == 0)?;
    let cage = ground.watched(Strict, Some(LIMIT)).await?;
    let (heard, alarms) = carried(ground, &cage, words).await?;
    let (_, again) = carried(ground, &cage, words).await?;
    let _ = cage.sandbox.destroy().await;
    control(format!("heard {heard} with a limit"), heard > 0)?;
    judged(alarms + again != 1, format!("{alarms} alarms, and {again} more the second time"))
}
