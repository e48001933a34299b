//! Runs one command in a cage: sends the request, copies its input and output, and enforces its timeout.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ralph_core::proof_files::ObservedFiles;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

use super::cage::RunningCage;
use super::launcher_protocol::{self, CommandMessage, ProgramRequest};
use crate::command_pipes::CommandPipes;
use crate::{ExecExit, ExecRequest, ExecStatus, OutputSink, ResourceLimit};

/// The time between SIGTERM and SIGKILL when a command has timed out.
const TIMEOUT_GRACE: Duration = Duration::from_secs(2);
/// How long the command supervisor may take to kill a process tree; then the whole cage is ended.
const KILL_GRACE: Duration = Duration::from_secs(8);
/// How long to wait for further output of a command that has ended, when another process keeps its pipes open.
const DRAIN_GRACE: Duration = Duration::from_millis(200);

/// Why a command has no exit status.
#[derive(Debug)]
pub(super) enum CommandError {
    /// It could not be started.
    NotStarted(io::Error),
    /// It was started, but its end was not reported.
    LostTrack(io::Error),
}

type CageCommandPipes<'a> = CommandPipes<'a, pipe::Sender, pipe::Receiver, pipe::Receiver>;

/// Runs a command to its end. If the future is dropped before that, the command supervisor kills the whole process
/// tree.
pub(super) async fn run(
    live: &Arc<RunningCage>,
    exec: &ExecRequest,
    start: &ProgramRequest,
    sink: &mut dyn OutputSink,
) -> Result<ExecExit, CommandError> {
    let began = Instant::now();
    let counted = live.cgroup_events();
    let (line, mut pipes) = start_command(live, exec, start).await.map_err(CommandError::NotStarted)?;
    let mut line = SupervisorChannel { stream: Some(line), cage: live };
    let deadline = tokio::time::sleep(exec.timeout);
    tokio::pin!(deadline);
    let mut observed = None;
    let ended = loop {
        tokio::select! {
            moved = pipes.step(sink) => moved.map_err(CommandError::LostTrack)?,
            received = line.receive() => match received.map_err(CommandError::LostTrack)? {
                Some((CommandMessage::NotStarted(errno), _)) => {
                    line.close();
                    return Err(CommandError::NotStarted(start_error(errno)));
                }
                Some((CommandMessage::ProcessTableFull, _)) => live.record_limit(ResourceLimit::Processes),
                Some((CommandMessage::Terminal, Some(terminal))) => pipes = terminal_pipes(terminal, exec).map_err(CommandError::LostTrack)?,
                Some((CommandMessage::Observed, Some(found))) => observed = read_observed(found),
                Some((message, _)) => break Some(message),
                None => {
                    // The command supervisor was killed from inside, so what is left of the command is unknown: the
                    // whole cage is ended.
                    live.end().await;
                    break Some(CommandMessage::Killed(SIGKILL));
                }
            },
            () = live.wait_ended() => break Some(CommandMessage::Killed(SIGKILL)),
            () = &mut deadline => break None,
        }
    };
    let status = match ended {
        Some(CommandMessage::Exited(code)) => ExecStatus::Code(code),
        Some(CommandMessage::Killed(signal)) => ExecStatus::Signal(signal),
        Some(_) => return Err(CommandError::LostTrack(io::ErrorKind::InvalidData.into())),
        None => {
            time_out(live, &line, &mut pipes, sink).await.map_err(CommandError::LostTrack)?;
            ExecStatus::TimedOut
        }
    };
    line.close();
    if let Some(observed) = observed {
        sink.observed(observed);
    }
    let grace = if status == ExecStatus::TimedOut { Duration::ZERO } else { DRAIN_GRACE };
    pipes.drain(grace, sink).await.map_err(CommandError::LostTrack)?;
    if let Some(disk) = live.disk.as_ref().filter(|_| live.is_running())
        && disk.is_over_limit().await
    {
        // Checked now, because the disk watch would notice it later and attribute it to the next command.
        live.record_limit(ResourceLimit::Disk);
        live.end().await;
    }
    let limit = live.limit_reached_since(began, counted).or_else(|| file_size_limit(status));
    Ok(ExecExit { status, duration: began.elapsed(), limit })
}

/// Reads what a command supervisor recorded; nothing if it is unreadable.
fn read_observed(found: OwnedFd) -> Option<ObservedFiles> {
    serde_json::from_slice(&launcher_protocol::read_sealed(found).ok()?).ok()
}

/// Returns the disk limit if the command ended by a file that grew too large: by the signal itself, or by a shell's
/// code for it.
fn file_size_limit(status: ExecStatus) -> Option<ResourceLimit> {
    let signal = libc::SIGXFSZ;
    (status == ExecStatus::Signal(signal) || status == ExecStatus::Code(128 + signal)).then_some(ResourceLimit::Disk)
}

/// Returns the error with an explanation where the error number alone is not enough.
fn start_error(errno: i32) -> io::Error {
    let error = io::Error::from_raw_os_error(errno);
    if errno == libc::EAGAIN {
        let why = "the sandbox has reached its limit of processes; stop it to end the ones left running";
        return io::Error::new(error.kind(), why);
    }
    error
}

/// The channel to a command's supervisor. Dropped before the command has ended, it makes sure that the command ends: a
/// command supervisor that was stopped from inside would not even notice the closed channel.
struct SupervisorChannel<'a> {
    stream: Option<UnixStream>,
    cage: &'a Arc<RunningCage>,
}

impl SupervisorChannel<'_> {
    async fn receive(&self) -> io::Result<Option<(CommandMessage, Option<OwnedFd>)>> {
        match &self.stream {
            Some(line) => receive_message(line).await,
            None => Ok(None),
        }
    }

    fn send(&self, message: CommandMessage) {
        if let Some(line) = &self.stream {
            // A command supervisor that is gone has reported before, or its cage is gone too; the receiver sees both.
            let _ = launcher_protocol::send(line.as_fd(), &message.bytes(), &[]);
        }
    }

    /// Closes the channel after the command has ended.
    fn close(&mut self) {
        self.stream = None;
    }
}

impl Drop for SupervisorChannel<'_> {
    fn drop(&mut self) {
        self.send(CommandMessage::Kill);
        let (Some(line), Ok(runtime)) = (self.stream.take(), tokio::runtime::Handle::try_current()) else { return };
        let live = Arc::downgrade(self.cage);
        runtime.spawn(async move {
            let closed = async { while let Ok(Some(_)) = receive_message(&line).await {} };
            if tokio::time::timeout(KILL_GRACE, closed).await.is_err()
                && let Some(live) = live.upgrade()
            {
                live.end().await;
            }
        });
    }
}

const SIGKILL: i32 = 9;

/// Asks process 1 to start the command.
async fn start_command<'a>(
    live: &RunningCage,
    exec: &'a ExecRequest,
    start: &ProgramRequest,
) -> io::Result<(UnixStream, CageCommandPipes<'a>)> {
    let request = launcher_protocol::write_sealed("start", &serde_json::to_vec(start)?)?;
    let (line, theirs) = std::os::unix::net::UnixStream::pair()?;
    line.set_nonblocking(true)?;
    let line = UnixStream::from_std(line)?;
    if start.terminal.is_some() {
        live.send_request(&[request.as_fd(), theirs.as_fd()]).await?;
        return Ok((line, CommandPipes::new(None, &[], None, None)));
    }
    let input = if start.input { Some(io::pipe()?) } else { None };
    let (out, their_out) = io::pipe()?;
    let (err, their_err) = io::pipe()?;
    let (their_in, own_in) = input.map_or((None, None), |(theirs, own)| (Some(theirs), Some(own)));
    if let Some(workspace) = live.roots.first() {
        // A program may open its own output by name, and where ralph is root the agent is another user.
        for end in [Some(their_out.as_fd()), Some(their_err.as_fd()), their_in.as_ref().map(std::os::fd::AsFd::as_fd)] {
            end.map_or(Ok(()), |end| workspace.chown_to_owner(end))?;
        }
    }
    let mut descriptors: Vec<BorrowedFd<'_>> = vec![request.as_fd(), theirs.as_fd()];
    descriptors.extend(their_in.as_ref().map(std::os::fd::AsFd::as_fd));
    descriptors.extend([their_out.as_fd(), their_err.as_fd()]);
    live.send_request(&descriptors).await?;
    let stdin = own_in.map(|own| pipe::Sender::from_owned_fd(OwnedFd::from(own))).transpose()?;
    let out = pipe::Receiver::from_owned_fd(OwnedFd::from(out))?;
    let err = pipe::Receiver::from_owned_fd(OwnedFd::from(err))?;
    Ok((line, CommandPipes::new(stdin, &exec.stdin, Some(out), Some(err))))
}

/// Returns pipes that read and write a terminal.
fn terminal_pipes(terminal: OwnedFd, exec: &ExecRequest) -> io::Result<CageCommandPipes<'_>> {
    rustix::io::ioctl_fionbio(&terminal, true)?;
    let out = pipe::Receiver::from_owned_fd_unchecked(terminal.try_clone()?)?;
    let stdin = if exec.stdin.is_empty() { None } else { Some(pipe::Sender::from_owned_fd_unchecked(terminal)?) };
    Ok(CommandPipes::new(stdin, &exec.stdin, Some(out), None))
}

/// Terminates the command, then kills it, then ends the cage.
async fn time_out(
    live: &RunningCage,
    line: &SupervisorChannel<'_>,
    pipes: &mut CageCommandPipes<'_>,
    sink: &mut dyn OutputSink,
) -> io::Result<()> {
    'asking: for (message, grace) in [(CommandMessage::Terminate, TIMEOUT_GRACE), (CommandMessage::Kill, KILL_GRACE)] {
        line.send(message);
        let grace = tokio::time::sleep(grace);
        tokio::pin!(grace);
        loop {
            // The output is still read, or a command that prints something before it exits would block.
            tokio::select! {
                moved = pipes.step(sink) => moved?,
                received = line.receive() => match received? {
                    Some((CommandMessage::ProcessTableFull, _)) => live.record_limit(ResourceLimit::Processes),
                    Some((CommandMessage::Observed, _)) => (),
                    Some(_) => return Ok(()),
                    // The command supervisor is gone without a report: its processes may be left.
                    None => break 'asking,
                },
                () = live.wait_ended() => return Ok(()),
                () = &mut grace => break,
            }
        }
    }
    live.end().await;
    Ok(())
}

/// Receives the next message of a command supervisor; `None` when it is gone.
async fn receive_message(line: &UnixStream) -> io::Result<Option<(CommandMessage, Option<OwnedFd>)>> {
    loop {
        line.readable().await?;
        match line.try_io(Interest::READABLE, || launcher_protocol::receive_up_to(line.as_fd(), CommandMessage::SIZE)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => (),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
            received => {
                let (bytes, descriptors) = received?;
                let Ok(bytes) = bytes.try_into() else { return Ok(None) };
                let message = CommandMessage::parse(bytes).ok_or(io::ErrorKind::InvalidData)?;
                return Ok(Some((message, descriptors.into_iter().next())));
            }
        }
    }
}
