//! Attacks on other processes, and what a process may have inherited.

use std::fs;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::super::case::Control::{Host, Maybe, Without};
use super::super::case::{Case, Trouble, control, judged, name};
use super::super::range::{LONG, Range, victim};
use super::super::report::Verdict;
use crate::Status;
use crate::embedded::Wall::{self, Capabilities, Descriptors, Dumpable, Environment, Seccomp};

pub(super) const CASES: &[Case] = &[
    Case::line(
        "PR-01.victim",
        "a process of the host in /proc",
        r"tr '\0' ' ' < /proc/$VICTIM/cmdline 2>/dev/null | grep -q 600.0426 && echo GOT",
        Host,
    ),
    Case::line(
        "PR-01.any",
        "any process of the host",
        "for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline; echo; done 2>/dev/null | grep -q '[6]00.0426' && echo GOT",
        Host,
    ),
    Case::line("PR-01.first", "process 1 is ours", "[ \"$(cat /proc/1/comm)\" = ralph-init ] || echo GOT", Host),
    Case::own("PR-02.kill", "killing everybody", &[], |r, _| Box::pin(kill_everybody(r))),
    Case::own("PR-03.first", "killing and stopping process 1", &[], |r, _| Box::pin(kill_first(r))),
    Case::call("PR-04.ptrace", "tracing process 1", "call ptrace 0x4206 1 0 0", "EPERM", Without(&[Dumpable])),
    Case::call("PR-04.memory", "reading the memory of process 1", "look-into 1", "EPERM", Without(&[Dumpable])),
    Case::call(
        "PR-05.environ",
        "the environment of process 1",
        "call openat -100 s:/proc/1/environ 0",
        "EACCES",
        Without(&[Dumpable]),
    ),
    Case::call(
        "PR-05.mem",
        "the memory file of process 1",
        "call openat -100 s:/proc/1/mem 2",
        "EACCES",
        Without(&[Dumpable]),
    ),
    Case::call(
        "PR-05.maps",
        "the memory map of process 1",
        "call openat -100 s:/proc/1/maps 0",
        "EACCES",
        Without(&[Dumpable]),
    ),
    Case::call(
        "PR-05.auxv",
        "the start values of process 1",
        "call openat -100 s:/proc/1/auxv 0",
        "EACCES",
        Without(&[Dumpable]),
    ),
    Case::own("PR-07.variable", "a variable of the supervisor", &[Environment], |r, c| {
        Box::pin(inherited(r, c, Environment, "env"))
    }),
    Case::line(
        "PR-07.names",
        "variables that lead to agents and desktops",
        "env | grep -qE '^(SSH_AUTH_SOCK|DBUS_|DISPLAY|WAYLAND|LD_|CARGO_|GITHUB_|AWS_|SUDO_|OLDPWD=/root)' && echo GOT; true",
        Maybe(&[Environment], "the supervisor has none of them"),
    ),
    Case::own("PR-08.words", "secrets in the words of our processes", &[], |r, _| Box::pin(words(r))),
    Case::line("PR-09.descriptors", "descriptors beyond the three", "\"$PROBE\" descriptors", Without(&[Descriptors])),
    Case::own("PR-09.planted", "a descriptor of the supervisor", &[Descriptors], |r, c| {
        Box::pin(inherited(r, c, Descriptors, "cat <&9"))
    }),
    Case::own("PR-13.timeout", "a daemon that outlives its command's time", &[], |r, _| {
        Box::pin(daemon(r, End::Timeout))
    }),
    Case::own("PR-13.stop", "a daemon that outlives the sandbox's end", &[], |r, _| Box::pin(daemon(r, End::Stop))),
    Case::own("PR-14.orphans", "two thousand orphans", &[], |r, _| Box::pin(orphans(r))),
    Case::line(
        "PR-17.signal",
        "a signal to a process of the host",
        "kill -0 $VICTIM 2>/dev/null && [ \"$(tr '\\0' ' ' < /proc/$VICTIM/cmdline)\" = 'sleep 600.0426 ' ] && echo GOT",
        Host,
    ),
    Case::line(
        "PR-18.capabilities",
        "any capability in any set",
        "grep -E '^Cap(Inh|Prm|Eff|Bnd|Amb)' /proc/self/status | grep -qv '0000000000000000$' && echo GOT",
        Without(&[Capabilities]),
    ),
    Case::line(
        "PR-18.privileges",
        "new privileges by a program",
        "grep -q '^NoNewPrivs:.*0$' /proc/self/status && echo GOT",
        Host,
    ),
    Case::line(
        "PR-18.filter",
        "no filter on system calls",
        "grep -q '^Seccomp:.*[01]$' /proc/self/status && echo GOT",
        Without(&[Seccomp]),
    ),
    Case::call("PR-18.root", "becoming root", "call setuid 0", "EINVAL", Host),
    Case::line(
        "PR-19.core",
        "a crash that a program of the host looks into",
        "ulimit -c 0; awk '/^Max core/ && ($5 != 1 || $6 != 1) { print \"GOT\", $0 }' /proc/self/limits",
        Without(&[Seccomp]),
    ),
    Case::call(
        "PR-05.oom",
        "sacrificing process 1 first",
        "call openat -100 s:/proc/1/oom_score_adj 1",
        "EACCES",
        Without(&[Dumpable]),
    ),
    Case::own("PR-09.terminal", "descriptors beyond the three, with a terminal", &[Descriptors], |r, c| {
        Box::pin(at_terminal(r, c))
    }),
    Case::own("PR-20.shm", "shared memory of the host", &[], |r, _| {
        Box::pin(messages(r, "call shmget $KEY 4096 0o1666", "call shmget $KEY 0 0", "call shmctl ID 0 0"))
    }),
    Case::own("PR-20.msg", "message queues of the host", &[], |r, _| {
        Box::pin(messages(r, "call msgget $KEY 0o1666", "call msgget $KEY 0", "call msgctl ID 0 0"))
    }),
    Case::own("PR-20.mq", "named message queues of the host", &[], |r, _| {
        Box::pin(messages(
            r,
            "call mq_open s:ralph$KEY 0o102 0o666 0",
            "call mq_open s:ralph$KEY 0 0 0",
            "call mq_unlink s:ralph$KEY",
        ))
    }),
];

/// Kills all it can, fresh and with nothing of the suite beside it; the host's own process must not notice.
async fn kill_everybody(range: &Range<'_>) -> Result<Verdict, Trouble> {
    let sandbox = range.fresh(&[]).await?;
    // Ends itself as well, most likely: how it ends is not the question.
    let _ = range.say(&*sandbox, "kill -9 $VICTIM; kill -9 -$VICTIM; kill -9 $PPID; kill -9 -1").await;
    let lives = range.victim_lives();
    let after = range.say(&*sandbox, "echo again").await?;
    sandbox.destroy().await?;
    let mut other = victim()?;
    range.outside(&format!("kill -9 {}", other.id())).await?;
    // Killed by the control, or else by us.
    let ended = other.try_wait()?.is_some()
        || (0..200).any(|_| {
            std::thread::sleep(Duration::from_millis(5));
            matches!(other.try_wait(), Ok(Some(_)))
        });
    let _ = other.kill();
    let _ = other.wait();
    control("the host's own kill ends nothing", ended)?;
    control("the sandbox answers no more", after.trim() == "again")?;
    judged(!lives, "a process of the host is gone")
}

async fn kill_first(range: &Range<'_>) -> Result<Verdict, Trouble> {
    let sandbox = range.fresh(&[]).await?;
    let line = "echo kept > /tmp/same-cage; kill -KILL 1; kill -STOP 1; kill -TERM 1; sleep 60 & kill -KILL $!; wait $! || echo killed $?";
    let told = range.say(&*sandbox, line).await?;
    let after = range.run(&*sandbox, "cat /tmp/same-cage", Duration::from_secs(5)).await;
    sandbox.destroy().await?;
    control(&format!("kill ends nothing at all: {told}"), told.contains("killed 137"))?;
    let same = after.is_ok_and(|output| output.stdout_text().trim() == "kept");
    judged(!same, "process 1 has ended or stands still")
}

/// Starts a supervisor that has a secret in its environment and in a descriptor, and looks for it inside.
async fn inherited(range: &Range<'_>, case: &Case, wall: Wall, line: &str) -> Result<Verdict, Trouble> {
    let lacking: Vec<Wall> = range.options()?.without.iter().chain(case.off).copied().collect();
    let told = supervised(range, &lacking, line).await?;
    if told.contains(&range.canary) {
        return judged(true, "the secret is inside");
    }
    let open: Vec<Wall> = lacking.iter().copied().chain([wall]).collect();
    let there = supervised(range, &open, line).await?;
    control(&format!("it is not found without the wall either: {there}"), there.contains(&range.canary))?;
    judged(false, "")
}

async fn supervised(range: &Range<'_>, without: &[Wall], line: &str) -> Result<String, Trouble> {
    let walls: Vec<String> = without.iter().map(|wall| name(*wall)).collect();
    let dir = range.folder.join(format!("owner-{}", crate::token::random()));
    let mut command = Command::new("sh");
    command
        .args(["-c", r#"exec 9< "$1"; exec "$0" own "$2" "$3" "$4""#])
        .arg(range.probe())
        .arg(range.folder.join("home/.ssh/id_canary"))
        .arg(&dir)
        .args([&walls.join(","), line])
        .env("RALPH_CANARY", &range.canary)
        .stdin(Stdio::null());
    let output = tokio::process::Command::from(command).kill_on_drop(true).output().await?;
    let _ = crate::files::remove_tree(&dir);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

async fn at_terminal(range: &Range<'_>, case: &Case) -> Result<Verdict, Trouble> {
    let look = async |without: &[Wall]| -> Result<String, Trouble> {
        let sandbox = range.shared(without).await?;
        let mut exec = range.payload(&*sandbox, r#"[ -t 0 ] && echo terminal; "$PROBE" descriptors"#, LONG);
        exec.terminal = Some((24, 80));
        Ok(crate::capture(&*sandbox, &exec, 1 << 16).await?.stdout_text())
    };
    let told = look(case.off).await?;
    control(&format!("there is no terminal: {told}"), told.contains("terminal"))?;
    if told.contains("GOT") {
        return judged(true, told);
    }
    control("none is found without the wall either", look(&[Descriptors]).await?.contains("GOT"))?;
    judged(false, "")
}

/// Looks at the words of every process on the host while a command with a secret variable runs.
async fn words(range: &Range<'_>) -> Result<Verdict, Trouble> {
    let sandbox = range.fresh(&[]).await?;
    let secret = format!("secret-{}", range.token);
    let mut exec = range.payload(&*sandbox, "sleep 33.0427; true", LONG);
    exec.env.push(("A_SECRET".to_owned(), secret.clone()));
    let mut sink = crate::Capture::new(0);
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
        ended = running => return Err(Trouble::Broken(format!("the command ended: {ended:?}"))),
    };
    sandbox.destroy().await?;
    control("the command is not seen on the host", seen.iter().any(|line| line.contains("33.0427")))?;
    judged(seen.iter().any(|line| line.contains(&secret)), "a secret stands in somebody's words")
}

/// Returns the words of all processes this user can see.
pub(super) fn command_lines() -> Vec<String> {
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let words = pids.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    words.map(|words| String::from_utf8_lossy(&words).replace('\0', " ")).collect()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Timeout,
    Stop,
}

/// Leaves a process in a session of its own behind and looks whether it lives on.
async fn daemon(range: &Range<'_>, end: End) -> Result<Verdict, Trouble> {
    let sandbox = range.fresh(&[]).await?;
    let sign = format!("44.0{}", std::process::id());
    let leave = format!("(setsid sh -c 'trap \"\" TERM HUP; sleep {sign}; true' >/dev/null 2>&1 &)");
    let line = if end == End::Timeout { format!("{leave}; sleep 30") } else { leave };
    let timeout = if end == End::Timeout { Duration::from_millis(700) } else { LONG };
    let running = range.run(&*sandbox, &line, timeout);
    let seen = async {
        let until = Instant::now() + Duration::from_secs(5);
        while Instant::now() < until {
            if lives(&sign) {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        false
    };
    let (output, seen) = tokio::join!(running, seen);
    let output = output?;
    if end == End::Stop {
        sandbox.stop().await?;
    } else {
        control("the time was not over", output.exit.status == Status::TimedOut)?;
    }
    let after = still(&sign).await;
    sandbox.destroy().await?;
    control("the daemon was never seen", seen)?;
    judged(after, "a process lives on")
}

fn lives(sign: &str) -> bool {
    command_lines().iter().any(|line| line.starts_with("sleep") && line.contains(sign))
}

/// Returns whether a process is still there after the second it may take to die.
pub(super) async fn still(sign: &str) -> bool {
    let until = Instant::now() + Duration::from_secs(1);
    while Instant::now() < until {
        if !lives(sign) {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    true
}

async fn orphans(range: &Range<'_>) -> Result<Verdict, Trouble> {
    let count = "grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l";
    let sandbox = range.fresh(&[]).await?;
    let made = range.say(&*sandbox, "\"$PROBE\" orphans 2000").await?;
    let left = range.say(&*sandbox, &format!("sleep 0.2; {count}")).await?;
    // A parent that does not look after its child shows that the dead are counted.
    let own = range.say(&*sandbox, &format!("sh -c 'sleep 0 & exec sleep 2' & sleep 0.5; {count}")).await?;
    sandbox.destroy().await?;
    control(&format!("no orphan was made: {made}"), made.trim() == "made 2000")?;
    control(&format!("the dead are not counted: {own}"), own.trim().parse::<u32>().is_ok_and(|dead| dead > 0))?;
    judged(left.trim() != "0", format!("{} are left", left.trim()))
}

/// Makes something on the host by which processes speak to one another, and looks for it inside.
async fn messages(range: &Range<'_>, make: &str, see: &str, remove: &str) -> Result<Verdict, Trouble> {
    let on_host = |words: String| async move { range.outside(&format!("\"$PROBE\" {words}")).await };
    let made = on_host(make.to_owned()).await?;
    let told = range.inside(&[], &format!("\"$PROBE\" {see}")).await?;
    let there = on_host(see.to_owned()).await?;
    let id = made.trim().strip_prefix("ok ").unwrap_or("-1").to_owned();
    on_host(remove.replace("ID", &id)).await?;
    control(&format!("it is not found on the host either: {there}"), there.starts_with("ok"))?;
    judged(told.trim() != "ENOENT", told)
}
