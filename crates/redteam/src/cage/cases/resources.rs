//! Attacks on resource limits, with small limits so that the host hardly notices.

use std::time::{Duration, Instant};

use ralph_sandbox::embedded::IsolationMechanism::{self, Limits};
use ralph_sandbox::{ExecStatus, ResourceLimit};

use super::super::arena::{LONG, SandboxArena};
use super::super::case::PayloadControl::{Host, Without};
use super::super::case::{SandboxAttack, SandboxAttackError, attack_verdict, require_control};
use crate::report::AttackVerdict;

pub(super) const CASES: &[SandboxAttack] = &[
    SandboxAttack::custom("RX-01.forks", "more processes than allowed", &[Limits], |r, _| Box::pin(forks(r))),
    SandboxAttack::custom("RX-02.memory", "more memory than allowed", &[Limits], |r, _| {
        Box::pin(memory(r, r#""$PROBE" eat 671088640"#))
    }),
    SandboxAttack::custom("RX-02.many", "more memory than allowed, in many small processes", &[Limits], |r, _| {
        Box::pin(memory(
            r,
            r#"for i in 1 2 3 4 5 6 7 8; do "$PROBE" eat 83886080 4 & done; wait; echo done; ls /proc | grep -c '^[0-9]' >/dev/null"#,
        ))
    }),
    SandboxAttack::custom("RX-02.shared", "more memory than allowed, in shared mappings", &[Limits], |r, _| {
        Box::pin(memory(r, r#""$PROBE" eat-shared 671088640"#))
    }),
    SandboxAttack::custom("RX-02.files", "more memory than allowed, in files in memory", &[Limits], |r, _| {
        Box::pin(memory(
            r,
            "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; do dd if=/dev/zero of=/tmp/f$i bs=1M count=40 2>/dev/null || exit 1; done; sleep 1; echo GOT",
        ))
    }),
    SandboxAttack::custom(
        "RX-04.processors",
        "more processors than allowed",
        &[IsolationMechanism::Seccomp],
        |r, _| Box::pin(processors(r)),
    ),
    SandboxAttack::custom("RX-05.disk", "more disk than allowed, in many files", &[Limits], |r, _| {
        Box::pin(disk(r, MANY_FILES))
    }),
    SandboxAttack::custom("RX-05.nameless", "more disk than allowed, in unlinked files", &[Limits], |r, _| {
        Box::pin(disk(r, UNLINKED_FILES))
    }),
    SandboxAttack::custom("RX-05.deep", "more disk than allowed, deeper than the longest path", &[Limits], |r, _| {
        Box::pin(disk(r, r#""$PROBE" deep-files 25 16"#))
    }),
    SandboxAttack::custom("RX-05.locked", "more disk than allowed, in a locked folder", &[Limits], |r, _| {
        Box::pin(disk(r, LOCKED_FOLDER))
    }),
    SandboxAttack::custom("RX-06.file", "a file larger than allowed", &[Limits], |r, _| Box::pin(file(r))),
    SandboxAttack::custom("RX-09.time", "a command that ignores its timeout", &[], |r, _| Box::pin(time(r))),
    SandboxAttack::custom("RX-12.descriptors", "an unlimited number of descriptors", &[], |r, _| {
        Box::pin(descriptors(r))
    }),
    SandboxAttack::line(
        "RX-13.raise",
        "raising its own limits",
        "ulimit -f unlimited 2>/dev/null && [ \"$(ulimit -f)\" = unlimited ] && echo GOT",
        Without(&[Limits]),
    ),
    SandboxAttack::line(
        "RX-14.tmp",
        "a temporary folder without limits",
        "[ \"$(stat -f -c '%T' /tmp)\" = tmpfs ] && [ \"$(stat -f -c %c /tmp)\" -le 524288 ] || echo GOT",
        Host,
    ),
];

const MANY_FILES: &str =
    "for i in $(seq 16); do dd if=/dev/zero of=f$i bs=1M count=20 2>/dev/null || exit 1; sleep 0.2; done; echo GOT";

/// Opens every file before the folder is locked; afterwards no file can be reached by name.
const LOCKED_FOLDER: &str = "mkdir locked; cd locked; \
    for i in $(seq 16); do { sleep 0.5; sleep 0.$((i % 8)); dd if=/dev/zero bs=1M count=20 2>/dev/null; } > f$i & done; \
    sleep 0.2; chmod 0 .; wait; sleep 2; echo GOT";

/// Unlinks each file before anything is written to it.
const UNLINKED_FILES: &str = "for i in 1 2 3 4 5 6 7 8; do \
    { rm f$i; dd if=/dev/zero bs=1M count=40 2>/dev/null; sleep 0.2; sleep $((9 - i)); } > f$i & \
    sleep 0.4; done; sleep 0.5; echo GOT";

async fn forks(arena: &SandboxArena<'_>) -> Result<AttackVerdict, SandboxAttackError> {
    let count =
        |printed: &str| printed.trim().strip_prefix("made ").and_then(|count| count.parse::<u32>().ok()).unwrap_or(0);
    let line = r#""$PROBE" forks 500"#;
    let sandbox = arena.small_sandbox(&[]).await?;
    let made = count(&arena.run_text(&*sandbox, line).await?);
    sandbox.destroy().await?;
    let open = arena.small_sandbox(&[Limits]).await?;
    let there = count(&arena.run_text(&*open, line).await?);
    open.destroy().await?;
    require_control(&format!("without limits it creates only {there}"), there == 500)?;
    attack_verdict(made > 160, format!("{made} processes where 64 are allowed"))
}

async fn memory(arena: &SandboxArena<'_>, line: &str) -> Result<AttackVerdict, SandboxAttackError> {
    let sandbox = arena.small_sandbox(&[]).await?;
    let output = arena.run(&*sandbox, line, LONG).await?;
    let again = arena.run_text(&*sandbox, "echo again").await?;
    sandbox.destroy().await?;
    let many = line.matches(" & done").count() * 7 + 1;
    let whole = |text: &str| text.matches("GOT").count() == many;
    let escaped = whole(&output.stdout_text()) && output.exit.limit != Some(ResourceLimit::Memory);
    if escaped {
        return attack_verdict(true, format!("reported as {:?}", output.exit));
    }
    let open = arena.small_sandbox(&[Limits]).await?;
    let there = arena.run_text(&*open, line).await?;
    open.destroy().await?;
    require_control(&format!("without limits it fails too: {there}"), whole(&there))?;
    require_control("the sandbox cannot be used afterwards", again.trim() == "again")?;
    attack_verdict(false, "")
}

/// Asks for all processors where one is allowed; with a quota instead, time is limited and not the number of
/// processors.
async fn processors(arena: &SandboxArena<'_>) -> Result<AttackVerdict, SandboxAttackError> {
    let here = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    if here < 2 {
        return Err(SandboxAttackError::Skip("this host has one processor".to_owned()));
    }
    let one = arena.one_cpu_sandbox().await?;
    let printed = arena.run_text(&*one, r#""$PROBE" processors"#).await?;
    one.destroy().await?;
    let free = arena.run_inside(&[], r#""$PROBE" processors"#).await?;
    let count =
        |printed: &str| printed.split_whitespace().nth(1).and_then(|count| count.parse::<usize>().ok()).unwrap_or(0);
    require_control(&format!("it gets no more where all are allowed: {free}"), count(&free) >= 2)?;
    attack_verdict(count(&printed) > 1, printed)
}

/// Runs a line that writes 320 MiB and then prints `GOT`: slowly enough for the disk watcher to notice, and no more
/// than a host can spare.
async fn disk(arena: &SandboxArena<'_>, line: &str) -> Result<AttackVerdict, SandboxAttackError> {
    let sandbox = arena.small_sandbox(&[]).await?;
    let output = arena.run(&*sandbox, line, LONG).await?;
    sandbox.destroy().await?;
    if output.stdout_text().contains("GOT") {
        return attack_verdict(true, "320 MiB where 64 are allowed");
    }
    let open = arena.small_sandbox(&[Limits]).await?;
    let there = arena.run_text(&*open, line).await?;
    open.destroy().await?;
    require_control("without limits it fails too", there.contains("GOT"))?;
    attack_verdict(
        output.exit.limit != Some(ResourceLimit::Disk),
        format!("the reason is not reported: {:?}", output.exit),
    )
}

async fn file(arena: &SandboxArena<'_>) -> Result<AttackVerdict, SandboxAttackError> {
    let line = "truncate -s 1T big && echo GOT";
    let sandbox = arena.small_sandbox(&[]).await?;
    let printed = arena.run_text(&*sandbox, line).await?;
    sandbox.destroy().await?;
    let open = arena.small_sandbox(&[Limits]).await?;
    let there = arena.run_text(&*open, line).await?;
    open.destroy().await?;
    if printed.contains("GOT") {
        return attack_verdict(true, "a file of 1 TiB where 64 MiB are allowed");
    }
    require_control(&format!("without limits it fails too: {there}"), there.contains("GOT"))?;
    attack_verdict(false, "")
}

async fn time(arena: &SandboxArena<'_>) -> Result<AttackVerdict, SandboxAttackError> {
    let sandbox = arena.shared_sandbox(&[]).await?;
    let line = "trap '' TERM INT HUP; echo began; while :; do sleep 0.1; done";
    let began = Instant::now();
    let output = arena.run(&*sandbox, line, Duration::from_millis(500)).await?;
    require_control("the command never began", output.stdout_text().contains("began"))?;
    let late = began.elapsed() > Duration::from_secs(6) || output.exit.status != ExecStatus::TimedOut;
    attack_verdict(late, format!("{:?} after {:?}", output.exit.status, began.elapsed()))
}

async fn descriptors(arena: &SandboxArena<'_>) -> Result<AttackVerdict, SandboxAttackError> {
    let sandbox = arena.shared_sandbox(&[]).await?;
    let printed = arena.run_text(&*sandbox, r#"ulimit -n $(ulimit -Hn); "$PROBE" pipes 100000"#).await?;
    let made = printed.trim().strip_prefix("made ").and_then(|count| count.parse::<u32>().ok()).unwrap_or(0);
    require_control(&format!("not even a hundred: {printed}"), made >= 100)?;
    attack_verdict(made > 65_536, format!("{made} descriptors"))
}
