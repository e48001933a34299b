//! One command as a subprocess: its pipes, its time and its end. Which command in which folder is decided above.

use std::io;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};

use super::mark::{self, End, Mark};
use super::watchdog::Watchdog;
use crate::pump::Pipes;
use crate::{Sink, Status};

/// What a command is given between being asked to end and being ended, when its time is over.
const TIMEOUT_GRACE: Duration = Duration::from_secs(2);
/// The same when nobody waits for the command any more.
const CANCEL_GRACE: Duration = Duration::from_millis(500);
/// How long the output of a command that has ended is waited for, when something else keeps its pipes open.
const DRAIN_GRACE: Duration = Duration::from_millis(200);
const TICK: Duration = Duration::from_millis(10);

/// A started command. Dropped before its end, it ends the command and everything under it.
#[derive(Debug)]
pub(super) struct Running {
    child: Option<Child>,
    group: Pid,
    mark: Mark,
    watchdog: Arc<Watchdog>,
}

impl Running {
    /// Starts the command as the leader of a process group of its own.
    pub(super) fn start(mut command: Command, mark: Mark, watchdog: &Arc<Watchdog>, input: bool) -> io::Result<Self> {
        command.process_group(0).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.stdin(if input { Stdio::piped() } else { Stdio::null() });
        let child = command.spawn()?;
        let group = child.id().and_then(|id| Pid::from_raw(id.try_into().ok()?));
        let group = group.expect("a child that was not waited for has a number");
        watchdog.add(group, &mark.key);
        Ok(Self { child: Some(child), group, mark, watchdog: watchdog.clone() })
    }

    /// Follows the command to its end, or ends it when its time is over.
    pub(super) async fn finish(mut self, input: &[u8], timeout: Duration, sink: &mut dyn Sink) -> io::Result<Status> {
        let child = self.child.as_mut().expect("only the end takes the child");
        let mut pipes = Pipes::new(child.stdin.take(), input, child.stdout.take(), child.stderr.take());
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
        self.ended();
        pipes.drain(DRAIN_GRACE, sink).await?;
        Ok(status_of(status))
    }

    async fn time_out(
        mut self,
        mut pipes: Pipes<'_, ChildStdin, ChildStdout, ChildStderr>,
        sink: &mut dyn Sink,
    ) -> io::Result<Status> {
        let child = self.child.as_mut().expect("only the end takes the child");
        signal(self.group, Signal::TERM);
        let grace = tokio::time::sleep(TIMEOUT_GRACE);
        tokio::pin!(grace);
        let mut reaped = false;
        loop {
            // The output goes on, or a command that prints its farewell could never finish doing so.
            tokio::select! {
                moved = pipes.step(sink) => moved?,
                status = child.wait(), if !reaped => { status?; reaped = true; }
                () = tokio::time::sleep(TICK), if reaped => if is_empty(self.group) { break },
                () = &mut grace => break,
            }
        }
        signal(self.group, Signal::KILL);
        child.wait().await?;
        let mark = self.mark.clone();
        self.ended();
        let hunt = move || mark::end(|found| *found == mark, End::Now);
        if let Ok(Err(left)) = tokio::task::spawn_blocking(hunt).await {
            tracing::warn!(left, "processes outlived their timeout");
        }
        pipes.drain(Duration::ZERO, sink).await?;
        Ok(Status::TimedOut)
    }

    /// Notes that the leader was reaped: from now on the group's number may be somebody else's.
    fn ended(&mut self) {
        self.child = None;
        self.watchdog.del(self.group);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let Some(child) = self.child.take() else { return };
        signal(self.group, Signal::TERM);
        let (group, mark, watchdog) = (self.group, self.mark.clone(), self.watchdog.clone());
        // A thread and not a task: it must also finish when the runtime is being shut down. Should the whole process
        // end before it does, the watchdog takes over.
        let end = std::thread::Builder::new().name("ralph-end-command".to_owned());
        let started = end.spawn(move || {
            end_cancelled(child, group);
            watchdog.del(group);
            if let Err(left) = mark::end(|found| *found == mark, End::Now) {
                tracing::warn!(left, "processes outlived their cancelled command");
            }
        });
        if started.is_err() {
            signal(group, Signal::KILL);
            self.watchdog.del(group);
        }
    }
}

fn end_cancelled(mut child: Child, group: Pid) {
    let until = Instant::now() + CANCEL_GRACE;
    let mut reaped = false;
    while Instant::now() < until && !(reaped && is_empty(group)) {
        reaped = reaped || !matches!(child.try_wait(), Ok(None));
        std::thread::sleep(TICK);
    }
    signal(group, Signal::KILL);
    while matches!(child.try_wait(), Ok(None)) {
        std::thread::sleep(TICK);
    }
}

pub(super) fn signal(group: Pid, signal: Signal) {
    // The only likely failure is that nobody is left to hear it.
    let _ = kill_process_group(group, signal);
}

fn is_empty(group: Pid) -> bool {
    test_kill_process_group(group) == Err(Errno::SRCH)
}

fn status_of(status: ExitStatus) -> Status {
    use std::os::unix::process::ExitStatusExt;
    match (status.code(), status.signal()) {
        (Some(code), _) => Status::Code(code),
        (None, Some(signal)) => Status::Signal(signal),
        (None, None) => unreachable!("a process that was waited for has exited or was killed"),
    }
}
