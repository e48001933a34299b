//! Ends the commands when ralph itself is killed and cannot do it any more.
//!
//! The watchdog is a small shell script whose standard input is a pipe from us. We report which process groups run;
//! when the pipe closes, for whatever reason, it ends them and then every process with our tag. Two gaps remain: a
//! group that has not been reported yet is found by its tag only, and a watchdog that is killed together with ralph
//! does nothing. The next `open` of the sandbox covers both.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::process::Stdio;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::Pid;
use tokio::process::{Child, Command};

/// `$1` is the pattern of our tag. The watchdog ignores the signals that a terminal sends.
const SCRIPT: &str = r#"
trap '' HUP INT QUIT TERM
groups=' '
while read -r verb group; do
    case $verb in
        add) groups="$groups$group " ;;
        del) case $groups in *" $group "*) groups="${groups%% $group *} ${groups#* $group }" ;; esac ;;
    esac
done
for group in $groups; do
    kill -s KILL -- "-$group"
done
for round in 1 2 3 4 5; do
    found=$(grep -las -- "$1" /proc/[0-9]*/environ)
    [ -n "$found" ] || break
    for file in $found; do
        pid=${file#/proc/}
        kill -s KILL "${pid%/environ}"
    done
done
"#;

/// The process groups of one backend, and the watchdog process that tracks them.
#[derive(Debug)]
pub(super) struct Watchdog {
    pattern: String,
    state: Mutex<WatchdogState>,
}

#[derive(Debug, Default)]
struct WatchdogState {
    /// The key of the sandbox that each group belongs to.
    groups: BTreeMap<i32, String>,
    process: Option<WatchdogProcess>,
}

#[derive(Debug)]
struct WatchdogProcess {
    pipe: File,
    /// Ends by itself when the pipe closes; after a drop the runtime reaps it.
    child: Child,
}

impl Watchdog {
    /// Prepares a watchdog for the owner with this token; it starts with the first command.
    pub(super) fn new(owner: &str) -> Self {
        let pattern = format!(r"{}=[^.]*\.[0-9]*\.[0-9]*\.{owner}\.", super::process_tag::TAG_VARIABLE);
        Self { pattern, state: Mutex::default() }
    }

    /// Makes sure that the watchdog runs, before the command that it has to end.
    pub(super) fn start(&self, path: &OsStr) -> io::Result<()> {
        let mut state = self.state();
        let running = match &mut state.process {
            Some(process) => matches!(process.child.try_wait(), Ok(None)),
            None => false,
        };
        if running {
            return Ok(());
        }
        let mut process = WatchdogProcess::start(&self.pattern, path)?;
        for group in state.groups.keys() {
            process.send("add", *group)?;
        }
        state.process = Some(process);
        Ok(())
    }

    pub(super) fn add(&self, group: Pid, key: &str) {
        self.update("add", group, |groups| groups.insert(group.as_raw_nonzero().get(), key.to_owned()));
    }

    pub(super) fn remove(&self, group: Pid) {
        self.update("del", group, |groups| groups.remove(&group.as_raw_nonzero().get()));
    }

    /// Returns the groups running for the sandbox of this key.
    pub(super) fn groups(&self, key: &str) -> Vec<Pid> {
        let state = self.state();
        state.groups.iter().filter(|(_, of)| *of == key).filter_map(|(group, _)| Pid::from_raw(*group)).collect()
    }

    fn update(&self, verb: &str, group: Pid, change: impl FnOnce(&mut BTreeMap<i32, String>) -> Option<String>) {
        let mut state = self.state();
        change(&mut state.groups);
        let sent = match &mut state.process {
            Some(process) => process.send(verb, group.as_raw_nonzero().get()),
            None => Ok(()),
        };
        if let Err(error) = sent {
            tracing::warn!(%error, "could not write to the watchdog");
            if let Some(mut process) = state.process.take() {
                // Killed before its pipe closes, or it would end groups that are still in use. The next command starts
                // another watchdog, which gets the whole list. Usually this one is dead already.
                let _ = process.child.start_kill();
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, WatchdogState> {
        // Every change is complete before anything can panic, so a poisoned state is still consistent.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl WatchdogProcess {
    fn start(pattern: &str, path: &OsStr) -> io::Result<Self> {
        let mut child = Command::new("sh")
            .args(["-c", SCRIPT, "ralph-watchdog", pattern])
            // Without the tag of an outer sandbox, or ending that sandbox would end this watchdog.
            .env_clear()
            .env("PATH", path)
            .current_dir("/")
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let pipe = child.stdin.take().expect("its standard input was requested as a pipe").into_owned_fd()?;
        // A stopped watchdog must not stop us.
        fcntl_setfl(&pipe, fcntl_getfl(&pipe)? | OFlags::NONBLOCK)?;
        Ok(Self { pipe: File::from(pipe), child })
    }

    fn send(&mut self, verb: &str, group: i32) -> io::Result<()> {
        // One write of less than a pipe's atomic size: a line arrives complete or not at all.
        self.pipe.write_all(format!("{verb} {group}\n").as_bytes())
    }
}
