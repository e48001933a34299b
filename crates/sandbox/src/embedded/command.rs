//! One command in a cage: its request, its pipes or terminal, its time and its end.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::net::unix::pipe;

use super::live::Live;
use super::wire::{self, Start, Word};
use crate::pump::Pipes;
use crate::{Exec, Exit, Limit, Sink, Status};

/// What a command is given between being asked to end and being ended, when its time is over.
const TIMEOUT_GRACE: Duration = Duration::from_secs(2);
/// How long the keeper may take to end a tree; then the whole cage is ended.
const KILL_GRACE: Duration = Duration::from_secs(8);
/// How long the output of a command that has ended is waited for, when something else keeps its pipes open.
const DRAIN_GRACE: Duration = Duration::from_millis(200);

/// Why a command has no exit.
#[derive(Debug)]
pub(super) enum Lost {
    /// It could not be started.
    NotStarted(io::Error),
    /// It was started and then lost sight of.
    Unseen(io::Error),
}

type Moving<'a> = Pipes<'a, pipe::Sender, pipe::Receiver, pipe::Receiver>;

/// Runs a command to its end. Dropped before that, the keeper ends the command and everything under it.
pub(super) async fn run(live: &Arc<Live>, exec: &Exec, start: &Start, sink: &mut dyn Sink) -> Result<Exit, Lost> {
    let began = Instant::now();
    let counted = live.counted();
    let (line, mut pipes) = begin(live, exec, start).await.map_err(Lost::NotStarted)?;
    let mut line = Line { line: Some(line), live };
    let deadline = tokio::time::sleep(exec.timeout);
    tokio::pin!(deadline);
    let ended = loop {
        tokio::select! {
            moved = pipes.step(sink) => moved.map_err(Lost::Unseen)?,
            heard = line.hear() => match heard.map_err(Lost::Unseen)? {
                Some((Word::NotStarted(errno), _)) => {
                    line.close();
                    return Err(Lost::NotStarted(not_started(errno)));
                }
                Some((Word::Full, _)) => live.note(Limit::Processes),
                Some((Word::Terminal, Some(terminal))) => pipes = terminal_pipes(terminal, exec).map_err(Lost::Unseen)?,
                Some((word, _)) => break Some(word),
                None => {
                    // Its keeper was ended from inside, so nobody knows what is left of it: the cage goes with it.
                    live.end().await;
                    break Some(Word::Killed(KILLED));
                }
            },
            () = live.gone() => break Some(Word::Killed(KILLED)),
            () = &mut deadline => break None,
        }
    };
    let status = match ended {
        Some(Word::Exited(code)) => Status::Code(code),
        Some(Word::Killed(signal)) => Status::Signal(signal),
        Some(_) => return Err(Lost::Unseen(io::ErrorKind::InvalidData.into())),
        None => {
            time_out(live, &line, &mut pipes, sink).await.map_err(Lost::Unseen)?;
            Status::TimedOut
        }
    };
    line.close();
    let grace = if status == Status::TimedOut { Duration::ZERO } else { DRAIN_GRACE };
    pipes.drain(grace, sink).await.map_err(Lost::Unseen)?;
    if let Some(disk) = live.disk.as_ref().filter(|_| live.stands())
        && disk.is_over().await
    {
        // It was faster than the watch, which would blame the next command.
        live.note(Limit::Disk);
        live.end().await;
    }
    let limit = live.reached(began, counted).or_else(|| too_long(status));
    Ok(Exit { status, duration: began.elapsed(), limit })
}

/// Tells a file that became too long from other ends: by the signal itself, or as shells speak of it.
fn too_long(status: Status) -> Option<Limit> {
    let signal = libc::SIGXFSZ;
    (status == Status::Signal(signal) || status == Status::Code(128 + signal)).then_some(Limit::Disk)
}

/// Says what a number alone would not.
fn not_started(errno: i32) -> io::Error {
    let error = io::Error::from_raw_os_error(errno);
    if errno == libc::EAGAIN {
        let why = "the sandbox runs as many processes as it may; stop it to end what was left running";
        return io::Error::new(error.kind(), why);
    }
    error
}

/// The line to a command's keeper. Let go before the command has ended, it sees to it that the command does: a keeper
/// that was stopped from inside would not even notice.
struct Line<'a> {
    line: Option<UnixStream>,
    live: &'a Arc<Live>,
}

impl Line<'_> {
    async fn hear(&self) -> io::Result<Option<(Word, Option<OwnedFd>)>> {
        match &self.line {
            Some(line) => hear(line).await,
            None => Ok(None),
        }
    }

    fn say(&self, word: Word) {
        if let Some(line) = &self.line {
            // A keeper that is gone has told, or its cage is gone too; both are seen by whoever listens.
            let _ = wire::send(line.as_fd(), &word.bytes(), &[]);
        }
    }

    /// Lets go of it; the command has ended.
    fn close(&mut self) {
        self.line = None;
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        self.say(Word::End);
        let (Some(line), Ok(runtime)) = (self.line.take(), tokio::runtime::Handle::try_current()) else { return };
        let live = Arc::downgrade(self.live);
        runtime.spawn(async move {
            let silence = async { while let Ok(Some(_)) = hear(&line).await {} };
            if tokio::time::timeout(KILL_GRACE, silence).await.is_err()
                && let Some(live) = live.upgrade()
            {
                live.end().await;
            }
        });
    }
}

const KILLED: i32 = 9;

/// Asks process 1 to start the command.
async fn begin<'a>(live: &Live, exec: &'a Exec, start: &Start) -> io::Result<(UnixStream, Moving<'a>)> {
    let request = wire::sealed("start", &serde_json::to_vec(start)?)?;
    let (line, theirs) = std::os::unix::net::UnixStream::pair()?;
    line.set_nonblocking(true)?;
    let line = UnixStream::from_std(line)?;
    if start.terminal.is_some() {
        live.ask(&[request.as_fd(), theirs.as_fd()]).await?;
        return Ok((line, Pipes::new(None, &[], None, None)));
    }
    let input = if start.input { Some(io::pipe()?) } else { None };
    let (out, their_out) = io::pipe()?;
    let (err, their_err) = io::pipe()?;
    let (their_in, own_in) = input.map_or((None, None), |(theirs, own)| (Some(theirs), Some(own)));
    if let Some(workspace) = live.roots.first() {
        // A program may open its own output by name, and where ralph is root the agent is somebody else.
        for end in [Some(their_out.as_fd()), Some(their_err.as_fd()), their_in.as_ref().map(std::os::fd::AsFd::as_fd)] {
            end.map_or(Ok(()), |end| workspace.give(end))?;
        }
    }
    let mut descriptors: Vec<BorrowedFd<'_>> = vec![request.as_fd(), theirs.as_fd()];
    descriptors.extend(their_in.as_ref().map(std::os::fd::AsFd::as_fd));
    descriptors.extend([their_out.as_fd(), their_err.as_fd()]);
    live.ask(&descriptors).await?;
    let stdin = own_in.map(|own| pipe::Sender::from_owned_fd(OwnedFd::from(own))).transpose()?;
    let out = pipe::Receiver::from_owned_fd(OwnedFd::from(out))?;
    let err = pipe::Receiver::from_owned_fd(OwnedFd::from(err))?;
    Ok((line, Pipes::new(stdin, &exec.stdin, Some(out), Some(err))))
}

/// Reads and writes a terminal in the place of pipes.
fn terminal_pipes(terminal: OwnedFd, exec: &Exec) -> io::Result<Moving<'_>> {
    rustix::io::ioctl_fionbio(&terminal, true)?;
    let out = pipe::Receiver::from_owned_fd_unchecked(terminal.try_clone()?)?;
    let stdin = if exec.stdin.is_empty() { None } else { Some(pipe::Sender::from_owned_fd_unchecked(terminal)?) };
    Ok(Pipes::new(stdin, &exec.stdin, Some(out), None))
}

/// Asks the command to end, then ends it, then ends the cage.
async fn time_out(live: &Live, line: &Line<'_>, pipes: &mut Moving<'_>, sink: &mut dyn Sink) -> io::Result<()> {
    'asking: for (word, grace) in [(Word::Ask, TIMEOUT_GRACE), (Word::End, KILL_GRACE)] {
        line.say(word);
        let grace = tokio::time::sleep(grace);
        tokio::pin!(grace);
        loop {
            // The output goes on, or a command that prints its farewell could never finish doing so.
            tokio::select! {
                moved = pipes.step(sink) => moved?,
                heard = line.hear() => match heard? {
                    Some((Word::Full, _)) => live.note(Limit::Processes),
                    Some(_) => return Ok(()),
                    // Gone without a word: what it kept may be left.
                    None => break 'asking,
                },
                () = live.gone() => return Ok(()),
                () = &mut grace => break,
            }
        }
    }
    live.end().await;
    Ok(())
}

/// Hears the next word on a command's line; `None` when its keeper is gone.
async fn hear(line: &UnixStream) -> io::Result<Option<(Word, Option<OwnedFd>)>> {
    loop {
        line.readable().await?;
        match line.try_io(Interest::READABLE, || wire::receive_up_to(line.as_fd(), Word::SIZE)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => (),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
            received => {
                let (bytes, descriptors) = received?;
                let Ok(bytes) = bytes.try_into() else { return Ok(None) };
                let word = Word::parse(bytes).ok_or(io::ErrorKind::InvalidData)?;
                return Ok(Some((word, descriptors.into_iter().next())));
            }
        }
    }
}
