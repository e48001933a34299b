//! Attacks on other processes, and on what a process may have inherited.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ralph_sandbox::ExecStatus;
use ralph_sandbox::embedded::IsolationMechanism::{
    self, Capabilities, Descriptors, Dumpable, Environment, Landlock, Seccomp,
};

use super::super::arena::{LONG, SandboxArena, random_token, spawn_victim};
use super::super::case::PayloadControl::{Host, IfSupported, Without};
use super::super::case::{SandboxAttack, SandboxAttackError, attack_verdict, require_control};
use crate::case::mechanism_name;
use crate::report::AttackVerdict;

pub(super) const CASES: &[SandboxAttack] = &[
    SandboxAttack::line(
        "PR-01.victim",
        "a process of the host in /proc",
        r"tr '\0' ' ' < /proc/$VICTIM/cmdline 2>/dev/null | grep -q 600.0426 && echo GOT",
        Host,
    ),
    SandboxAttack::line(
        "PR-01.any",
        "any process of the host",
        "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline; echo; done 2>/dev/null | grep -q '[6]00.0426' && echo GOT",
        Host,
    ),
    SandboxAttack::line(
        "PR-01.first",
        "process 1 is ours",
        "[ \"$(cat /proc/1/comm)\" = ralph-init ] || echo GOT",
        Host,
    ),
    SandboxAttack::custom("PR-02.kill", "killing every process", &[], |r, _| Box::pin(kill_all(r))),
    SandboxAttack::custom("PR-03.first", "killing and stopping process 1", &[], |r, _| Box::pin(kill_init(r))),
    SandboxAttack::call("PR-04.ptrace", "tracing process 1", "call ptrace 0x4206 1 0 0", "EPERM", Without(&[Dumpable])),
    SandboxAttack::call(
        "PR-04.memory",
        "reading the memory of process 1",
        "look-into 1",
        "EPERM",
        Without(&[Dumpable]),
    ),
    SandboxAttack::call(
        "PR-05.environ",
        "the environment of process 1",
        "call openat -100 s:/proc/1/environ 0",
        "EACCES",
        Without(&[Dumpable]),
    ),
    SandboxAttack::call(
        "PR-05.mem",
        "the memory file of process 1",
        "call openat -100 s:/proc/1/mem 2",
        "EACCES",
        Without(&[Dumpable, Landlock]),
    ),
    SandboxAttack::call(
        "PR-05.maps",
        "the memory map of process 1",
        "call openat -100 s:/proc/1/maps 0",
        "EACCES",
        Without(&[Dumpable]),
    ),
    SandboxAttack::call(
        "PR-05.auxv",
        "the auxiliary vector of process 1",
        "call openat -100 s:/proc/1/auxv 0",
        "EACCES",
        Without(&[Dumpable]),
    ),
    SandboxAttack::custom("PR-07.variable", "a variable of the supervisor", &[Environment], |r, c| {
        Box::pin(inherited_secret(r, c, Environment, "env"))
    }),
    SandboxAttack::line(
        "PR-07.names",
        "variables that name agent and desktop sockets",
        "env | grep -qE '^(SSH_AUTH_SOCK|DBUS_|DISPLAY|WAYLAND|LD_|CARGO_|GITHUB_|AWS_|SUDO_|OLDPWD=/root)' && echo GOT; true",
        IfSupported(&[Environment], "the supervisor has none of them"),
    ),
    SandboxAttack::custom("PR-08.words", "secrets in command lines on the host", &[], |r, _| {
        Box::pin(secret_in_command_line(r))
    }),
    SandboxAttack::line(
        "PR-09.descriptors",
        "descriptors besides the standard three",
        "\"$PROBE\" descriptors",
        Without(&[Descriptors]),
    ),
    SandboxAttack::custom("PR-09.planted", "a descriptor of the supervisor", &[Descriptors], |r, c| {
        Box::pin(inherited_secret(r, c, Descriptors, "cat <&9"))
    }),
    SandboxAttack::custom("PR-13.timeout", "a daemon that outlives its command's timeout", &[], |r, _| {
        Box::pin(daemon(r, DaemonEnd::Timeout))
    }),
    SandboxAttack::custom("PR-13.stop", "a daemon that outlives the sandbox", &[], |r, _| {
        Box::pin(daemon(r, DaemonEnd::Stop))
    }),
    SandboxAttack::custom("PR-14.orphans", "two thousand orphaned processes", &[], |r, _| Box::pin(orphans(r))),
    SandboxAttack::line(
        "PR-17.signal",
        "a signal to a process of the host",
        "kill -0 $VICTIM 2>/dev/null && [ \"$(tr '\\0' ' ' < /proc/$VICTIM/cmdline)\" = 'sleep 600.0426 ' ] && echo GOT",
        Host,
    ),
    SandboxAttack::line(
        "PR-18.capabilities",
        "any capability in any set",
        "grep -E '^Cap(Inh|Prm|Eff|Bnd|Amb)' /proc/self/status | grep -qv '0000000000000000$' && echo GOT",
        Without(&[Capabilities]),
    ),
    SandboxAttack::line(
        "PR-18.privileges",
        "new privileges from a set-user-id program",
        "grep -q '^NoNewPrivs:.*0$' /proc/self/status && echo GOT",
        Host,
    ),
    SandboxAttack::line(
        "PR-18.filter",
        "no filter on system calls",
        "grep -q '^Seccomp:.*[01]$' /proc/self/status && echo GOT",
        Without(&[Seccomp]),
    ),
    SandboxAttack::call("PR-18.root", "becoming root", "call setuid 0", "EINVAL", Host),
    SandboxAttack::line(
        "PR-19.core",
        "a core dump handled by a program of the host",
        "ulimit -c 0; awk '/^Max core/ && ($5 != 1 || $6 != 1) { print \"GOT\", $0 }' /proc/self/limits",
        Without(&[Seccomp]),
    ),
    SandboxAttack::call(
        "PR-05.oom",
        "making process 1 the first victim of the OOM killer",
        "call openat -100 s:/proc/1/oom_score_adj 1",
        "EACCES",
        Without(&[Dumpable, Landlock]),
    ),
    SandboxAttack::custom(
        "PR-09.terminal",
        "descriptors besides the standard three, with a terminal",
        &[Descriptors],
        |r, c| Box::pin(terminal_descriptors(r, c)),
    ),
    SandboxAttack::custom("PR-20.shm", "shared memory of the host", &[], |r, _| {
        Box::pin(ipc_objects(r, "call shmget $KEY 4096 0o1666", "call shmget $KEY 0 0", "call shmctl ID 0 0"))
    }),
    SandboxAttack::custom("PR-20.msg", "message queues of the host", &[], |r, _| {
        Box::pin(ipc_objects(r, "call msgget $KEY 0o1666", "call msgget $KEY 0", "call msgctl ID 0 0"))
    }),
    SandboxAttack::custom("PR-20.mq", "named message queues of the host", &[], |r, _| {
        Box::pin(ipc_objects(
            r,
            "call mq_open s:ralph$KEY 0o102 0o666 0",
            "call mq_open s:ralph$KEY 0 0 0",
            "call mq_unlink s:ralph$KEY",
        ))
    }),
];

/// Kills every process it can, in a fresh sandbox without other cases; the host's own process must survive.
async fn kill_all(arena: &SandboxArena<'_>) -> Result<AttackVerdict, SandboxAttackError> {
    let sandbox = arena.fresh_sandbox(&[]).await?;
    // Most likely kills itself as well; its own exit status does not matter.
    let _ = arena.run_text(&*sandbox, "kill -9 $VICTIM; kill -9 -$VICTIM; kill -9 $PPID; kill -9 -1").await;
    let lives = arena.is_victim_alive();
    let after = arena.run_text(&*sandbox, "echo again").await?;
    sandbox.destroy().await?;
    let mut other = spawn_victim()?;
    arena.run_on_host(&format!("kill -9 {}", other.id())).await?;
    // Killed by the control, or else here.
    let ended = other.try_wait()?.is_some()
        || (0..200).any(|_| {
            std::thread::sleep(Duration::from_millis(5));
            matches!(other.try_wait(), Ok(Some(_)))
        });
    let _ = other.kill();
    let _ = other.wait();
    require_control("a kill on the host ends nothing", ended)?;
    require_control("the sandbox does not respond any more", after.trim() == "again")?;
    attack_verdict(!lives, "a process of the host is gone")
}

async fn kill_init(arena: &SandboxArena<'_>) -> Result<AttackVerdict, SandboxAttackError> {
    let sandbox = arena.fresh_sandbox(&[]).await?;
    let line = "echo kept > /tmp/same-cage; kill -KILL 1; kill -STOP 1; kill -TERM 1; sleep 60 & kill -KILL $!; wait $! || echo killed $?";
    let printed = arena.run_text(&*sandbox, line).await?;
    let after = arena.run(&*sandbox, "cat /tmp/same-cage", Duration::from_secs(5)).await;
    sandbox.destroy().await?;
    require_control(&format!("kill ends nothing at all: {printed}"), printed.contains("killed 137"))?;
    let same = after.is_ok_and(|output| output.stdout_text().trim() == "kept");
    attack_verdict(!same, "process 1 has ended or is stopped")
}

/// Starts a supervisor that has a secret in its environment and in a descriptor, and looks for it inside.
async fn inherited_secret(
    arena: &SandboxArena<'_>,
    case: &SandboxAttack,
    mechanism: IsolationMechanism,
    line: &str,
) -> Result<AttackVerdict, SandboxAttackError> {
    let lacking: Vec<IsolationMechanism> =
        arena.options()?.disabled_mechanisms.iter().chain(case.payload.without_walls).copied().collect();
    let printed = run_under_supervisor(arena, &lacking, line).await?;
    if printed.contains(&arena.canary) {
        return attack_verdict(true, "the secret is inside");
    }
    let open: Vec<IsolationMechanism> = lacking.iter().copied().chain([mechanism]).collect();
    let there = run_under_supervisor(arena, &open, line).await?;
    require_control(&format!("it is not found without the mechanism either: {there}"), there.contains(&arena.canary))?;
    attack_verdict(false, "")
}

async fn run_under_supervisor(
    arena: &SandboxArena<'_>,
    without: &[IsolationMechanism],
    line: &str,
) -> Result<String, SandboxAttackError> {
    let mechanisms: Vec<String> = without.iter().map(|mechanism| mechanism_name(*mechanism)).collect();
    let dir = arena.folder.join(format!("owner-{}", random_token()?));
    let mut command = Command::new("sh");
    command
        .args(["-c", r#"exec 9< "$1"; exec "$0" own "$2" "$3" "$4""#])
        .arg(arena.probe())
        .arg(arena.folder.join("home/.ssh/id_canary"))
        .arg(&dir)
        .args([&mechanisms.join(","), line])
        .env("RALPH_CANARY", &arena.canary)
        .stdin(Stdio::null());
    let output = tokio::process::Command::from(command).kill_on_drop(true).output().await?;
    let _ = ralph_sandbox::files::remove_tree(&dir);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

async fn terminal_descriptors(
    arena: &SandboxArena<'_>,
    case: &SandboxAttack,
) -> Result<AttackVerdict, SandboxAttackError> {
    let look = async |without: &[IsolationMechanism]| -> Result<String, SandboxAttackError> {
        let sandbox = arena.shared_sandbox(without).await?;
        let mut exec = arena.payload(&*sandbox, r#"[ -t 0 ] && echo terminal; "$PROBE" descriptors"#, LONG);
        exec.terminal = Some((24, 80));
        Ok(ralph_sandbox::capture(&*sandbox, &exec, 1 << 16).await?.stdout_text())
    };
    let printed = look(case.payload.without_walls).await?;
    require_control(&format!("there is no terminal: {printed}"), printed.contains("terminal"))?;
    if printed.contains("GOT") {
        return attack_verdict(true, printed);
    }
    require_control("none is found without the mechanism either", look(&[Descriptors]).await?.contains("GOT"))?;
    attack_verdict(false, "")
}

/// Searches the command lines of all processes on the host while a command with a secret variable runs.
async fn secret_in_command_line(arena: &SandboxArena<'_>) -> Result<AttackVerdict, SandboxAttackError> {
    let sandbox = arena.fresh_sandbox(&[]).await?;
    let secret = format!("secret-{}", arena.token);
    let mut exec = arena.payload(&*sandbox, "sleep 33.0427; true", LONG);
    exec.env.push(("A_SECRET".to_owned(), secret.clone()));
    let mut sink = ralph_sandbox::OutputCapture::new(0);
    let running = sandbox.exec(&exec, &mut sink);
    let looking = async {
        let until = Instant::now() + Duration::from_secs(10);
        loop {
            let words: Vec<String> = command_lines();
            if words.iter().any(|line| line.contains("33.0427")) || Instant::now() > until {
                return words;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let seen = tokio::select! {
        seen = looking => seen,
        ended = running => return Err(SandboxAttackError::Broken(format!("the command ended: {ended:?}"))),
    };
    sandbox.destroy().await?;
    require_control("the command is not visible on the host", seen.iter().any(|line| line.contains("33.0427")))?;
    attack_verdict(seen.iter().any(|line| line.contains(&secret)), "a command line contains the secret")
}

/// Returns the command lines of all processes that this user can see.
pub(super) fn command_lines() -> Vec<String> {
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let words = pids.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    words.map(|words| String::from_utf8_lossy(&words).replace('\0', " ")).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DaemonEnd {
    Timeout,
    Stop,
}

/// Leaves a process in its own session and checks whether it keeps running.
async fn daemon(arena: &SandboxArena<'_>, end: DaemonEnd) -> Result<AttackVerdict, SandboxAttackError> {
    let sandbox = arena.fresh_sandbox(&[]).await?;
    let sign = format!("44.0{}", std::process::id());
    let leave = format!("(setsid sh -c 'trap \"\" TERM HUP; sleep {sign}; true' >/dev/null 2>&1 &)");
    let line = if end == DaemonEnd::Timeout { format!("{leave}; sleep 30") } else { leave };
    let timeout = if end == DaemonEnd::Timeout { Duration::from_millis(700) } else { LONG };
    let running = arena.run(&*sandbox, &line, timeout);
    let seen = async {
        let until = Instant::now() + Duration::from_secs(5);
        while Instant::now() < until {
            if is_running(&sign) {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        false
    };
    let (output, seen) = tokio::join!(running, seen);
    let output = output?;
    if end == DaemonEnd::Stop {
        sandbox.stop().await?;
    } else {
        require_control("the command did not time out", output.exit.status == ExecStatus::TimedOut)?;
    }
    let after = is_still_running(&sign).await;
    sandbox.destroy().await?;
    require_control("the daemon was never seen", seen)?;
    attack_verdict(after, "a process is still running")
}

fn is_running(sign: &str) -> bool {
    command_lines().iter().any(|line| line.starts_with("sleep") && line.contains(sign))
}

/// Returns whether a process is still running after the second it may take to die.
pub(super) async fn is_still_running(sign: &str) -> bool {
    let until = Instant::now() + Duration::from_secs(1);
    while Instant::now() < until {
        if !is_running(sign) {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    true
}

async fn orphans(arena: &SandboxArena<'_>) -> Result<AttackVerdict, SandboxAttackError> {
    let count = "grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l";
    let sandbox = arena.fresh_sandbox(&[]).await?;
    let made = arena.run_text(&*sandbox, "\"$PROBE\" orphans 2000").await?;
    let left = arena.run_text(&*sandbox, &format!("sleep 0.2; {count}")).await?;
    // A parent that does not reap its child shows that zombies are counted.
    let own = arena.run_text(&*sandbox, &format!("sh -c 'sleep 0 & exec sleep 2' & sleep 0.5; {count}")).await?;
    sandbox.destroy().await?;
    require_control(&format!("no orphan was created: {made}"), made.trim() == "made 2000")?;
    require_control(&format!("zombies are not counted: {own}"), own.trim().parse::<u32>().is_ok_and(|dead| dead > 0))?;
    attack_verdict(left.trim() != "0", format!("{} are left", left.trim()))
}

/// Creates an IPC object on the host, and looks for it inside.
async fn ipc_objects(
    arena: &SandboxArena<'_>,
    make: &str,
    see: &str,
    remove: &str,
) -> Result<AttackVerdict, SandboxAttackError> {
    let on_host = |words: String| async move { arena.run_on_host(&format!("\"$PROBE\" {words}")).await };
    let made = on_host(make.to_owned()).await?;
    let printed = arena.run_inside(&[], &format!("\"$PROBE\" {see}")).await?;
    let there = on_host(see.to_owned()).await?;
    let id = made.trim().strip_prefix("ok ").unwrap_or("-1").to_owned();
    on_host(remove.replace("ID", &id)).await?;
    require_control(&format!("it is not found on the host either: {there}"), there.starts_with("ok"))?;
    attack_verdict(printed.trim() != "ENOENT", printed)
}
