//! Attacks on the process that stands between a program and process 1, and answers for the program's end.

use std::time::{Duration, Instant};

use ralph_sandbox::ExecStatus;
use ralph_sandbox::embedded::IsolationMechanism::{Descriptors, Dumpable};

use super::super::arena::{LONG, SandboxArena};
use super::super::case::PayloadControl::Without;
use super::super::case::{SandboxAttack, SandboxAttackError, attack_verdict, require_control};
use super::processes::is_still_running;
use crate::report::AttackVerdict;

pub(super) const CASES: &[SandboxAttack] = &[
    SandboxAttack::call(
        "PR-30.ptrace",
        "tracing the keeper",
        "call ptrace 0x4206 $PPID 0 0",
        "EPERM",
        Without(&[Dumpable]),
    ),
    SandboxAttack::call(
        "PR-30.memory",
        "reading the keeper's memory",
        "look-into $PPID",
        "EPERM",
        Without(&[Dumpable]),
    ),
    SandboxAttack::call(
        "PR-30.mem",
        "the keeper's memory file",
        "call openat -100 s:/proc/$PPID/mem 2",
        "EACCES",
        Without(&[Dumpable]),
    ),
    SandboxAttack::call(
        "PR-30.fd",
        "the keeper's descriptors",
        "call openat -100 s:/proc/$PPID/fd 0",
        "EACCES",
        Without(&[Dumpable]),
    ),
    SandboxAttack::call(
        "PR-30.exe",
        "the keeper's program",
        "call openat -100 s:/proc/$PPID/exe 0",
        "EACCES",
        Without(&[Dumpable]),
    ),
    SandboxAttack::call(
        "PR-30.root",
        "the keeper's root",
        "call openat -100 s:/proc/$PPID/root/etc 0",
        "EACCES",
        Without(&[Dumpable]),
    ),
    SandboxAttack::custom("PR-31.kill", "killing the keeper", &[], |r, _| Box::pin(kill_supervisor(r))),
    SandboxAttack::custom("PR-31.stop", "stopping the keeper", &[], |r, _| Box::pin(stop_supervisor(r))),
    SandboxAttack::custom("PR-31.forge", "telling the supervisor of another end", &[Descriptors], |r, c| {
        Box::pin(forge_exit_status(r, c))
    }),
];

/// The command must be told as ended, and nothing of it may live on.
async fn kill_supervisor(range: &SandboxArena<'_>) -> Result<AttackVerdict, SandboxAttackError> {
    let sandbox = range.fresh_sandbox(&[]).await?;
    let sign = format!("45.0{}", std::process::id());
    let line = format!("echo began; kill -KILL $PPID; sleep {sign}");
    let output = range.run(&*sandbox, &line, LONG).await?;
    let after = is_still_running(&sign).await;
    sandbox.destroy().await?;
    require_control("the command never began", output.stdout_text().contains("began"))?;
    if output.exit.status != ExecStatus::Signal(9) {
        return attack_verdict(true, format!("told as {:?}", output.exit.status));
    }
    attack_verdict(after, "the command lives on without its keeper")
}

/// A keeper that stands still must not give the command all the time of the world.
async fn stop_supervisor(range: &SandboxArena<'_>) -> Result<AttackVerdict, SandboxAttackError> {
    let sandbox = range.fresh_sandbox(&[]).await?;
    let sign = format!("46.0{}", std::process::id());
    let line = format!("kill -STOP $PPID; echo stopped; sleep {sign}");
    let began = Instant::now();
    let output = range.run(&*sandbox, &line, Duration::from_millis(500)).await?;
    let took = began.elapsed();
    let after = is_still_running(&sign).await;
    sandbox.destroy().await?;
    require_control("the keeper was never stopped", output.stdout_text().contains("stopped"))?;
    if output.exit.status != ExecStatus::TimedOut || took > Duration::from_secs(15) {
        return attack_verdict(true, format!("told as {:?} after {took:?}", output.exit.status));
    }
    attack_verdict(after, "the command lives on behind its keeper")
}

/// Writes the keeper's word for a good end on every descriptor there is, and then ends badly.
async fn forge_exit_status(
    range: &SandboxArena<'_>,
    case: &SandboxAttack,
) -> Result<AttackVerdict, SandboxAttackError> {
    let line = r"for n in 3 4 5 6 7 8 9; do printf 'X\0\0\0\0' 2>/dev/null >&$n; done; sleep 0.2; exit 7";
    let line = format!("bash -c \"{}\"", line.replace('$', "\\$"));
    let sandbox = range.fresh_sandbox(case.payload.without_walls).await?;
    let status = range.run(&*sandbox, &line, LONG).await?.exit.status;
    sandbox.destroy().await?;
    if status != ExecStatus::Code(7) {
        return attack_verdict(true, format!("told as {status:?}"));
    }
    let open = range.fresh_sandbox(&[Descriptors]).await?;
    let there = range.run(&*open, &line, LONG).await?.exit.status;
    open.destroy().await?;
    require_control(&format!("without the wall it is told as {there:?}"), there != ExecStatus::Code(7))?;
    attack_verdict(false, "")
}
