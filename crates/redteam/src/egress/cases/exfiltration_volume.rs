//! Sends out large amounts by allowed connections: the proxy cannot inspect a tunnel, but it can measure its size.

use ralph_core::event::Event;
use ralph_engine::egress::EgressLease;

use super::super::arena::{ArenaCage, EgressArena};
use super::super::case::{EgressCase, case_verdict, require_control};
use super::super::policies::PolicyPreset::Strict;
use crate::report::AttackVerdict;

/// More than this raises an alarm.
const LIMIT: u64 = 100_000;

pub(super) const CASES: &[EgressCase] = &[
    EgressCase::custom("PC-33.tunnel", "a lot of data through one tunnel", |arena| {
        Box::pin(alarm_is_raised(
            arena,
            &[
                "connect:allowed.test:443",
                "tls:allowed.test",
                r"send:PUT / HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 300000\r\n\r\n",
                "pad:300000:a",
                "receive",
            ],
        ))
    }),
    EgressCase::custom("PC-33.pieces", "a lot of data in many small tunnels", |arena| {
        Box::pin(alarm_is_raised(
            arena,
            &[
                "many:30",
                "connect:allowed.test:443",
                "tls:allowed.test",
                r"send:PUT / HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 5000\r\n\r\n",
                "pad:5000:a",
                "receive",
            ],
        ))
    }),
    EgressCase::custom("PC-33.named", "a lot of data by a direct connection", |arena| {
        Box::pin(alarm_is_raised(
            arena,
            &[
                "name:allowed.test:443",
                "tls:allowed.test",
                r"send:PUT / HTTP/1.1\r\nHost: allowed.test\r\nContent-Length: 300000\r\n\r\n",
                "pad:300000:a",
                "receive",
            ],
        ))
    }),
    EgressCase::custom("PC-33.request", "a lot of data in a request", |arena| {
        Box::pin(alarm_is_raised(
            arena,
            &[
                "proxy",
                r"send:PUT http://plain.test/ HTTP/1.1\r\nHost: plain.test\r\nContent-Length: 300000\r\n\r\n",
                "pad:300000:a",
                "receive",
            ],
        ))
    }),
];

/// Sends data out; returns the number of messages received outside, and the number of alarms.
async fn send_out(arena: &EgressArena, cage: &ArenaCage, words: &[&str]) -> Result<(usize, usize), AttackVerdict> {
    let (_, happened) = arena.run_attack(cage, words).await?;
    let report = cage.with_egress(EgressLease::take_report).unwrap_or_default();
    let alarm = |event: &&Event| matches!(event, Event::Log { text, .. } if text.contains("has sent out more than"));
    Ok((happened.messages.len(), report.others.iter().filter(alarm).count()))
}

/// Checks that the data arrives in any case, that no alarm is raised without a limit, and exactly one with a limit.
async fn alarm_is_raised(arena: &EgressArena, words: &[&str]) -> Result<AttackVerdict, AttackVerdict> {
    let careless = arena.new_cage_with_alarm(Strict, None).await?;
    let (arrived, alarms) = send_out(arena, &careless, words).await?;
    let _ = careless.sandbox.destroy().await;
    require_control(
        format!("{arrived} messages arrived, {alarms} alarms without a limit"),
        arrived > 0 && alarms == 0,
    )?;
    let cage = arena.new_cage_with_alarm(Strict, Some(LIMIT)).await?;
    let (arrived, alarms) = send_out(arena, &cage, words).await?;
    let (_, again) = send_out(arena, &cage, words).await?;
    let _ = cage.sandbox.destroy().await;
    require_control(format!("{arrived} messages arrived with a limit"), arrived > 0)?;
    case_verdict(alarms + again != 1, format!("{alarms} alarms, and {again} more the second time"))
}
