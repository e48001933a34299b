//! Runs one command as a subprocess, with its pipes, its timeout and its end. The caller decides which command runs
//! where.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use super::process_tag::{self, EndMode, ProcessTag};
use super::watchdog::Watchdog;
use crate::command_pipes::CommandPipes;
use crate::{ExecStatus, OutputSink};

/// The time between SIGTERM and SIGKILL when a command has timed out.
const TIMEOUT_GRACE: Duration = Duration::from_secs(2);
/// The same when the caller has dropped the command.
const CANCEL_GRACE: Duration = Duration::from_millis(500);
/// How long to wait for further output of a command that has ended, when another process keeps its pipes open.
const DRAIN_GRACE: Duration = Duration::from_millis(200);
const TICK: Duration = Duration::from_millis(10);

/// A started command. Dropping it before its end kills the command and its descendants.
#[derive(Debug)]
pub(super) struct RunningCommand {
    child: Option<Child>,
    group: Pid,
    tag: ProcessTag,
    watchdog: Arc<Watchdog>,
}

impl RunningCommand {
    /// Starts the command as the leader of a process group of its own.
    pub(super) fn start(
        mut command: Command,
        tag: ProcessTag,
        watchdog: &Arc<Watchdog>,
        input: bool,
    ) -> io::Result<Self> {
        command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.stdin(if input { Stdio::piped() } else { Stdio::null() });
        let child = command.spawn()?;
        let group = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
        let group = group.expect("a child that was not waited for has a number");
        watchdog.add(group, &tag.key);
        Ok(Self { child: Some(child), group, tag, watchdog: watchdog.clone() })
    }

    /// Waits for the command to end, or ends it when it times out.
    pub(super) async fn finish(
        mut self,
        input: &[u8],
        timeout: Duration,
        sink: &mut dyn OutputSink,
    ) -> io::Result<ExecStatus> {
        let child = self.child.as_mut().expect("only the end takes the child");
        let mut pipes = CommandPipes::new(child.stdin.take(), input, child.stdout.take(), child.stderr.take());
        let deadline = tokio::time::sleep(timeout);
        tokio::pin!(deadline);
        let status = loop {
            tokio::select! {
                moved = pipes.step(sink) => moved?,
                status = child.wait() => break Some(status?),
                () = &mut deadline => break None,
            }
        };
        let Some(status) = status else {
            return self.time_out(pipes, sink).await;
        };
        self.forget_child();
        pipes.drain(DRAIN_GRACE, sink).await?;
        Ok(exec_status(status))
    }

    async fn time_out(
        mut self,
        mut pipes: CommandPipes<'_, ChildStdin, ChildStdout, ChildStderr>,
        sink: &mut dyn OutputSink,
    ) -> io::Result<ExecStatus> {
        let child = self.child.as_mut().expect("only the end takes the child");
        signal_group(self.group, Signal::TERM);
        let grace = tokio::time::sleep(TIMEOUT_GRACE);
        tokio::pin!(grace);
        let mut reaped = false;
        loop {
            // The output is still read, or a command that prints something before it exits would block.
            tokio::select! {
                moved = pipes.step(sink) => moved?,
                status = child.wait(), if !reaped => { status?; reaped = true; }
                () = tokio::time::sleep(TICK), if reaped => if is_group_empty(self.group) { break },
                () = &mut grace => break,
            }
        }
        signal_group(self.group, Signal::KILL);
        child.wait().await?;
        let tag = self.tag.clone();
        self.forget_child();
        let end_tagged = move || process_tag::end_tagged(|found| *found == tag, EndMode::Now);
        if let Ok(Err(left)) = tokio::task::spawn_blocking(end_tagged).await {
            tracing::warn!(left, "processes outlived their timeout");
        }
        pipes.drain(Duration::ZERO, sink).await?;
        Ok(ExecStatus::TimedOut)
    }

    /// Records that the leader was reaped: from now on the group's number may belong to another process.
    fn forget_child(&mut self) {
        self.child = None;
        self.watchdog.remove(self.group);
    }
}

impl Drop for RunningCommand {
    fn drop(&mut self) {
        let Some(child) = self.child.take() else { return };
        signal_group(self.group, Signal::TERM);
        let (group, tag, watchdog) = (self.group, self.tag.clone(), self.watchdog.clone());
        // A thread and not a task: it must also finish when the runtime is being shut down. If the whole process ends
        // before that, the watchdog takes over.
        let end = std::thread::Builder::new().name("ralph-end-command".to_owned());
        let started = end.spawn(move || {
            end_cancelled(child, group);
            watchdog.remove(group);
            if let Err(left) = process_tag::end_tagged(|found| *found == tag, EndMode::Now) {
                tracing::warn!(left, "processes outlived their cancelled command");
            }
        });
        if started.is_err() {
            signal_group(group, Signal::KILL);
            self.watchdog.remove(group);
        }
    }
}

fn end_cancelled(mut child: Child, group: Pid) {
    let until = Instant::now() + CANCEL_GRACE;
    let mut reaped = false;
    while Instant::now() < until && !(reaped && is_group_empty(group)) {
        reaped = reaped || !matches!(child.try_wait(), Ok(None));
        std::thread::sleep(TICK);
    }
    signal_group(group, Signal::KILL);
    while matches!(child.try_wait(), Ok(None)) {
        std::thread::sleep(TICK);
    }
}

pub(super) fn signal_group(group: Pid, signal: Signal) {
    // The only likely failure is that no process is left in the group.
    let _ = kill_process_group(group, signal);
}

fn is_group_empty(group: Pid) -> bool {
    test_kill_process_group(group) == Err(Errno::SRCH)
}

fn exec_status(status: ExitStatus) -> ExecStatus {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => ExecStatus::Code(code),
        (None, Some(signal)) => ExecStatus::Signal(signal),
        (None, None) => unreachable!("a process that was waited for has exited or was killed"),
    }
}
