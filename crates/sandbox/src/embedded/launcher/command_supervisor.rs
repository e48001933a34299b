//! Supervises one program: starts it, reaps orphaned processes while it runs, reports how it ended, and kills its whole
//! process tree on request.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::Mode;
use rustix::io::Errno;
use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitOptions, WaitStatus, chdir, getpid, getrlimit, kill_process, kill_process_group,
    set_child_subreaper, setrlimit, setsid, umask, wait,
};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use seccompiler::sock_filter;

use super::super::launcher_protocol::{self, CommandMessage, ProgramRequest};
use super::super::plan::CageLimits;
use super::file_observer::{self, FileObserver};
use super::{confinement, memory_watch, syscalls};

/// How long killing a process tree may take before everything in the cage is killed.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause between two checks of a tree that is being killed.
const TICK: Duration = Duration::from_millis(5);

/// The end of the range of descriptors that stay open in a cage that leaks them on purpose.
const LEAKED_FD_END: i32 = 64;

/// Supervises one program. The process has no other purpose and never returns.
pub(super) fn main(request: OwnedFd, line: &OwnedFd, descriptors: Vec<OwnedFd>, limits: &CageLimits) -> ! {
    let message = match supervise(request, line, descriptors, limits) {
        Ok(message) => message,
        Err(error) => CommandMessage::NotStarted(error.raw_os_error().unwrap_or(libc::EIO)),
    };
    // If this fails, the supervisor is gone and does not wait for the message.
    let _ = launcher_protocol::send(line.as_fd(), &message.bytes(), &[]);
    syscalls::exit(0)
}

fn supervise(
    request: OwnedFd,
    line: &OwnedFd,
    descriptors: Vec<OwnedFd>,
    limits: &CageLimits,
) -> io::Result<CommandMessage> {
    let start: ProgramRequest = serde_json::from_slice(&launcher_protocol::read_sealed(request)?)?;
    set_child_subreaper(Some(getpid()))?;
    let signals = syscalls::child_signal_fd()?;
    let (standard, terminal) = standard_fds(&start, descriptors)?;
    let filter = start.separated.then(confinement::separation_filter).transpose().map_err(io::Error::other)?;
    let become_program = |observer: Option<&OwnedFd>| {
        let error = become_program(&start, &standard, line, terminal.as_ref(), limits, filter.as_deref(), observer);
        let message = CommandMessage::NotStarted(error.raw_os_error().unwrap_or(libc::EIO));
        // As above. The command supervisor will also report the end of this process, which the receiver then ignores.
        let _ = launcher_protocol::send(line.as_fd(), &message.bytes(), &[]);
        126
    };
    let (program, mut observer) = match &start.observed {
        None => (syscalls::spawn(|| become_program(None))?, None),
        Some(workspace) => start_observed(workspace, become_program)?,
    };
    drop((standard, terminal));
    let (mut terminating, mut exited) = (false, None);
    loop {
        let mut fds = vec![PollFd::new(&signals, PollFlags::IN), PollFd::new(line, PollFlags::IN)];
        fds.extend(observer.as_ref().map(|observer| PollFd::new(observer.listener(), PollFlags::IN)));
        match poll(&mut fds, None) {
            Err(Errno::INTR) => continue,
            ready => ready?,
        };
        let revents: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
        let has_message = revents.get(1).is_some_and(|events| !events.is_empty());
        if let (Some(watcher), Some(events)) = (&mut observer, revents.get(2)) {
            if events.contains(PollFlags::IN) {
                watcher.handle_call();
            } else if !events.is_empty() {
                // The last process of the command has ended.
                send_observed(observer.take(), line);
            }
        }
        // Drained before reaping, so that a child that ends meanwhile wakes us again.
        let mut pending = [0; 1024];
        while rustix::io::read(&signals, &mut pending).is_ok_and(|read| read == pending.len()) {}
        exited = exited.or(reap(program)?);
        // Processes that a command leaves in the background may go on, unless it timed out.
        if let Some(message) = exited
            && (!terminating || children().is_empty())
        {
            if limits.watched_memory.is_some() && memory_watch::is_full(memory_watch::count_threads(), limits.processes)
            {
                // It may have ended because it could start no more processes. A failed send is ignored as above.
                let _ = launcher_protocol::send(line.as_fd(), &CommandMessage::ProcessTableFull.bytes(), &[]);
            }
            send_observed(observer.take(), line);
            return Ok(message);
        }
        if has_message {
            match receive_message(line) {
                Some(CommandMessage::Terminate) => {
                    terminating = true;
                    // It may have left its group or ended; the next message kills the whole tree.
                    let _ = kill_process_group(program, Signal::TERM);
                }
                _ => return Ok(kill_tree(program)),
            }
        }
    }
}

/// Starts the program so that the files it uses are recorded. It must not share memory with this process, which would
/// sleep while the program waits for it.
fn start_observed(
    workspace: &str,
    become_program: impl Fn(Option<&OwnedFd>) -> i32,
) -> io::Result<(Pid, Option<FileObserver>)> {
    let (own, theirs) = rustix::net::socketpair(
        rustix::net::AddressFamily::UNIX,
        rustix::net::SocketType::SEQPACKET,
        rustix::net::SocketFlags::CLOEXEC,
        None,
    )?;
    match syscalls::fork()? {
        None => {
            drop(own);
            syscalls::exit(become_program(Some(&theirs)))
        }
        Some(program) => {
            drop(theirs);
            Ok((program, FileObserver::receive(&own, workspace)?))
        }
    }
}

/// Sends what an observer found. Without it the receiver knows that nothing was recorded.
fn send_observed(observer: Option<FileObserver>, line: &OwnedFd) {
    if let Some(Ok(found)) = observer.map(FileObserver::finish) {
        let _ = launcher_protocol::send(line.as_fd(), &CommandMessage::Observed.bytes(), &[found.as_fd()]);
    }
}

fn receive_message(line: &OwnedFd) -> Option<CommandMessage> {
    let (bytes, _) = launcher_protocol::receive_up_to(line.as_fd(), CommandMessage::SIZE).ok()?;
    CommandMessage::parse(bytes.try_into().ok()?)
}

/// Reaps the children that have ended, and returns the exit of the program if it is among them.
fn reap(program: Pid) -> io::Result<Option<CommandMessage>> {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid == program => return Ok(Some(exit_message(status))),
            Ok(Some(_)) | Err(Errno::INTR) => (),
            Ok(None) | Err(Errno::CHILD) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        }
    }
}

fn exit_message(status: WaitStatus) -> CommandMessage {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => CommandMessage::Exited(code),
        (None, signal) => CommandMessage::Killed(signal.unwrap_or(0)),
    }
}

/// Kills the program and all its descendants: an orphaned process becomes a child of this process.
fn kill_tree(program: Pid) -> CommandMessage {
    let until = Instant::now() + KILL_TIMEOUT;
    let mut message = CommandMessage::Killed(Signal::KILL.as_raw());
    while Instant::now() < until {
        let children = children();
        for child in &children {
            // Those that have ended in between are reaped below.
            let _ = kill_process(*child, Signal::KILL);
        }
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == program => message = exit_message(status),
                Ok(Some(_)) | Err(Errno::INTR) => (),
                Err(_) => return message,
                Ok(None) => break,
            }
        }
        std::thread::sleep(if children.is_empty() { TICK } else { TICK / 5 });
    }
    // It starts processes faster than they can be found one by one, so every process in the cage is killed. The
    // supervisor notices by the closed channels of all command supervisors.
    syscalls::kill_all();
    syscalls::exit(1)
}

fn children() -> Vec<Pid> {
    let own = getpid().as_raw_nonzero();
    let list = fs::read_to_string(format!("/proc/{own}/task/{own}/children")).unwrap_or_default();
    list.split_whitespace().filter_map(|word| Pid::from_raw(word.parse().ok()?)).collect()
}

/// Returns the program's three standard descriptors, and the other side of its terminal.
fn standard_fds(start: &ProgramRequest, descriptors: Vec<OwnedFd>) -> io::Result<([OwnedFd; 3], Option<OwnedFd>)> {
    if let Some((rows, columns)) = start.terminal {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        unlockpt(&master)?;
        let slave = ioctl_tiocgptpeer(&master, OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        tcsetwinsize(&master, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 })?;
        return Ok(([slave.try_clone()?, slave.try_clone()?, slave], Some(master)));
    }
    let mut descriptors = descriptors.into_iter();
    let mut next = || descriptors.next().ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF));
    let input = if start.input { next()? } else { fs::File::open("/dev/null")?.into() };
    Ok(([input, next()?, next()?], None))
}

/// Becomes the program; returns only if that failed.
fn become_program(
    start: &ProgramRequest,
    standard: &[OwnedFd; 3],
    line: &OwnedFd,
    terminal: Option<&OwnedFd>,
    limits: &CageLimits,
    filter: Option<&[sock_filter]>,
    observer: Option<&OwnedFd>,
) -> io::Error {
    let apply = || {
        filter.map_or(Ok(()), seccompiler::apply_filter).map_err(io::Error::other)?;
        // Where a kernel cannot, or something observes this process already, the command runs unobserved.
        let _ = observer.map_or(Ok(()), file_observer::install);
        Ok::<(), io::Error>(())
    };
    match take_terminal(standard, line, terminal)
        .and_then(|()| prepare_process(start, standard, limits))
        .and_then(|()| apply())
    {
        Ok(()) => exec_program(start),
        Err(error) => error,
    }
}

/// Starts a session, with the terminal if there is one, and only then sends the other side of it to the supervisor:
/// input that arrives earlier would be lost.
fn take_terminal([input, ..]: &[OwnedFd; 3], line: &OwnedFd, terminal: Option<&OwnedFd>) -> io::Result<()> {
    setsid()?;
    let Some(master) = terminal else { return Ok(()) };
    rustix::process::ioctl_tiocsctty(input)?;
    launcher_protocol::send(line.as_fd(), &CommandMessage::Terminal.bytes(), &[master.as_fd()])
}

fn prepare_process(start: &ProgramRequest, standard: &[OwnedFd; 3], limits: &CageLimits) -> io::Result<()> {
    let [input, output, errors] = standard;
    // The three may occupy each other's numbers, so they are first copied to higher ones.
    let high = |fd: &OwnedFd| rustix::io::fcntl_dupfd_cloexec(fd, 10);
    for (fd, at) in [(high(input)?, 0), (high(output)?, 1), (high(errors)?, 2)] {
        syscalls::install_fd(fd.as_fd(), at)?;
    }
    let lower = |resource, most: u64| {
        let hard = getrlimit(resource).maximum.map_or(most, |hard| hard.min(most));
        setrlimit(resource, Rlimit { current: Some(hard), maximum: Some(hard) })
    };
    lower(Resource::Nproc, limits.processes)?;
    lower(Resource::Nofile, limits.open_files)?;
    lower(Resource::Fsize, limits.file_bytes)?;
    chdir(start.cwd.as_str())?;
    umask(Mode::from_raw_mode(0o022));
    syscalls::reset_signals();
    if limits.three_descriptors {
        syscalls::set_cloexec_from(3)
    } else {
        syscalls::clear_cloexec(3..LEAKED_FD_END);
        Ok(())
    }
}

/// Finds the program on its own `PATH`, and becomes it.
fn exec_program(start: &ProgramRequest) -> io::Error {
    let missing = || io::Error::from_raw_os_error(libc::ENOENT);
    let Some(name) = start.argv.first().filter(|name| !name.is_empty()) else { return missing() };
    let words = |words: &mut dyn Iterator<Item = String>| words.map(CString::new).collect::<Result<Vec<_>, _>>();
    let argv = words(&mut start.argv.iter().cloned());
    let env = words(&mut start.env.iter().map(|(name, value)| format!("{name}={value}")));
    let (Ok(argv), Ok(env)) = (argv, env) else { return io::Error::from_raw_os_error(libc::EINVAL) };
    let path = start.env.iter().find(|(name, _)| name == "PATH").map_or("", |(_, path)| path.as_str());
    let candidates: Vec<String> = if name.contains('/') {
        vec![name.clone()]
    } else {
        path.split(':').map(|dir| if dir.is_empty() { name.clone() } else { format!("{dir}/{name}") }).collect()
    };
    let mut answer = missing();
    for candidate in candidates {
        let Ok(program) = CString::new(candidate) else { return io::Error::from_raw_os_error(libc::EINVAL) };
        let error = syscalls::execve(&program, &argv, &env);
        match error.raw_os_error() {
            // Like a shell: continue the search, but remember that a file of this name exists.
            Some(libc::ENOENT | libc::ENOTDIR) => (),
            Some(libc::EACCES) => answer = error,
            _ => return error,
        }
    }
    answer
}
