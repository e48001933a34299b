//! Attacks on the command supervisor, which runs between a command and process 1 and reports how the command ended.

use std::time::{Duration, Instant};

use ralph_sandbox::ExecStatus;
use ralph_sandbox::embedded::IsolationMechanism::{Descriptors, Dumpable, Landlock};

use super::super::arena::{LONG, SandboxArena};
use super::super::case::PayloadControl::Without;
use super::super::case::{SandboxAttack, SandboxAttackError, attack_verdict, require_control};
use super::processes::is_still_running;
use crate::report::AttackVerdict;

pub(super) const CASES: &[SandboxAttack] = &[
    SandboxAttack::call(
        "PR-30.ptrace",
        "tracing the command supervisor",
        "call ptrace 0x4206 $PPID 0 0",
        "EPERM",
        Without(&[Dumpable]),
    ),
    SandboxAttack::call(
        "PR-30.memory",
        "reading the command supervisor's memory",
        "look-into $PPID",
        "EPERM",
        Without(&[Dumpable]),
    ),
    SandboxAttack::call(
        "PR-30.mem",
        "the command supervisor's memory file",
        "call openat -100 s:/proc/$PPID/mem 2",
        "EACCES",
        Without(&[Dumpable, Landlock]),
    ),
    SandboxAttack::call(
        "PR-30.fd",
        "the command supervisor's descriptors",
        "call openat -100 s:/proc/$PPID/fd 0",
        "EACCES",
        Without(&[Dumpable]),
    ),
    SandboxAttack::call(
        "PR-30.exe",
        "the command supervisor's program",
        "call openat -100 s:/proc/$PPID/exe 0",
        "EACCES",
        Without(&[Dumpable]),
    ),
    SandboxAttack::call(
        "PR-30.root",
        "the command supervisor's root",
        "call openat -100 s:/proc/$PPID/root/etc 0",
        "EACCES",
        Without(&[Dumpable]),
    ),
    SandboxAttack::custom("PR-31.kill", "killing the command supervisor", &[], |r, _| Box::pin(kill_supervisor(r))),
    SandboxAttack::custom("PR-31.stop", "stopping the command supervisor", &[], |r, _| Box::pin(stop_supervisor(r))),
    SandboxAttack::custom("PR-31.forge", "forging the exit status", &[Descriptors], |r, c| {
        Box::pin(forge_exit_status(r, c))
    }),
];

/// The command must be reported as ended, and none of its processes may keep running.
async fn kill_supervisor(arena: &SandboxArena<'_>) -> Result<AttackVerdict, SandboxAttackError> {
    let sandbox = arena.fresh_sandbox(&[]).await?;
    let sign = format!("45.0{}", std::process::id());
    let line = format!("echo began; kill -KILL $PPID; sleep {sign}");
    let output = arena.run(&*sandbox, &line, LONG).await?;
    let after = is_still_running(&sign).await;
    sandbox.destroy().await?;
    require_control("the command never began", output.stdout_text().contains("began"))?;
    if output.exit.status != ExecStatus::Signal(9) {
        return attack_verdict(true, format!("reported as {:?}", output.exit.status));
    }
    attack_verdict(after, "the command keeps running without its supervisor")
}

/// A stopped command supervisor must not disable the command's timeout.
async fn stop_supervisor(arena: &SandboxArena<'_>) -> Result<AttackVerdict, SandboxAttackError> {
    let sandbox = arena.fresh_sandbox(&[]).await?;
    let sign = format!("46.0{}", std::process::id());
    let line = format!("kill -STOP $PPID; echo stopped; sleep {sign}");
    let began = Instant::now();
    let output = arena.run(&*sandbox, &line, Duration::from_millis(500)).await?;
    let took = began.elapsed();
    let after = is_still_running(&sign).await;
    sandbox.destroy().await?;
    require_control("the command supervisor was never stopped", output.stdout_text().contains("stopped"))?;
    if output.exit.status != ExecStatus::TimedOut || took > Duration::from_secs(15) {
        return attack_verdict(true, format!("reported as {:?} after {took:?}", output.exit.status));
    }
    attack_verdict(after, "the command keeps running with a stopped supervisor")
}

/// Writes the supervisor's message for a successful exit to every open descriptor, and then fails.
async fn forge_exit_status(
    arena: &SandboxArena<'_>,
    case: &SandboxAttack,
) -> Result<AttackVerdict, SandboxAttackError> {
    let line = r"for n in 3 4 5 6 7 8 9; do printf 'X\0\0\0\0' 2>/dev/null >&$n; done; sleep 0.2; exit 7";
    let line = format!("bash -c \"{}\"", line.replace('$', "\\$"));
    let sandbox = arena.fresh_sandbox(case.payload.without_walls).await?;
    let status = arena.run(&*sandbox, &line, LONG).await?.exit.status;
    sandbox.destroy().await?;
    if status != ExecStatus::Code(7) {
        return attack_verdict(true, format!("reported as {status:?}"));
    }
    let open = arena.fresh_sandbox(&[Descriptors]).await?;
    let there = arena.run(&*open, &line, LONG).await?.exit.status;
    open.destroy().await?;
    require_control(&format!("without the mechanism it is reported as {there:?}"), there != ExecStatus::Code(7))?;
    attack_verdict(false, "")
}
