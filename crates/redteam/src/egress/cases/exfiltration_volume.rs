//! Carrying away a lot by ways that are allowed: nobody can look into a tunnel, but its size can be noticed.

use ralph_core::event::Event;
use ralph_engine::egress::EgressLease;

use super::super::arena::{ArenaCage, EgressArena};
use super::super::case::{EgressCase, case_verdict, require_control};
use super::super::policies::PolicyPreset::Strict;
use crate::report::AttackVerdict;

/// More than this raises an alarm.
const LIMIT: u64 = 100_000;

pub(super) const CASES: &[EgressCase] = &[
    EgressCase::custom("PC-33.tunnel", "a lot through one tunnel", |ground| {
        Box::pin(alarm_is_raised(
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
    EgressCase::custom("PC-33.pieces", "a lot in many small tunnels", |ground| {
        Box::pin(alarm_is_raised(
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
    EgressCase::custom("PC-33.named", "a lot by a connection that knows of no proxy", |ground| {
        Box::pin(alarm_is_raised(
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
    EgressCase::custom("PC-33.request", "a lot in a request", |ground| {
        Box::pin(alarm_is_raised(
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
async fn send_out(ground: &EgressArena, cage: &ArenaCage, words: &[&str]) -> Result<(usize, usize), AttackVerdict> {
    let (_, happened) = ground.run_attack(cage, words).await?;
    let told = cage.with_egress(EgressLease::take_report).unwrap_or_default();
    let alarm = |event: &&Event| matches!(event, Event::Log { text, .. } if text.contains("has sent out more than"));
    Ok((happened.messages.len(), told.others.iter().filter(alarm).count()))
}

/// It arrives in any case. Without a limit nobody notices, which is what the limit is for; with one it is told, once.
async fn alarm_is_raised(ground: &EgressArena, words: &[&str]) -> Result<AttackVerdict, AttackVerdict> {
    let careless = ground.new_cage_with_alarm(Strict, None).await?;
    let (heard, alarms) = send_out(ground, &careless, words).await?;
    let _ = careless.sandbox.destroy().await;
    require_control(format!("heard {heard}, alarms without a limit {alarms}"), heard > 0 && alarms == 0)?;
    let cage = ground.new_cage_with_alarm(Strict, Some(LIMIT)).await?;
    let (heard, alarms) = send_out(ground, &cage, words).await?;
    let (_, again) = send_out(ground, &cage, words).await?;
    let _ = cage.sandbox.destroy().await;
    require_control(format!("heard {heard} with a limit"), heard > 0)?;
    case_verdict(alarms + again != 1, format!("{alarms} alarms, and {again} more the second time"))
}
