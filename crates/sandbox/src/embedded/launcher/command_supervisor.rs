//! The keeper of one program: starts it, collects whatever it leaves behind while it runs, tells how it ended, and ends
//! it with its whole tree when asked to.

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

use super::super::launcher_protocol::{self, CommandMessage, ProgramRequest};
use super::super::plan::CageLimits;
use super::{memory_watch, sys};

/// How long a tree that is being ended may resist before everything in the cage is.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);
/// What an ending tree is given between two looks.
const TICK: Duration = Duration::from_millis(5);

/// Up to here descriptors are looked for, in a cage that leaves them open on purpose.
const LEAKED_FD_END: i32 = 64;

/// Keeps one program. The process exists for nothing else and never returns.
pub(super) fn main(request: OwnedFd, line: &OwnedFd, descriptors: Vec<OwnedFd>, limits: &CageLimits) -> ! {
    let word = match supervise(request, line, descriptors, limits) {
        Ok(word) => word,
        Err(error) => CommandMessage::NotStarted(error.raw_os_error().unwrap_or(libc::EIO)),
    };
    // Nobody to tell it to: then nobody waits either.
    let _ = launcher_protocol::send(line.as_fd(), &word.bytes(), &[]);
    sys::exit(0)
}

fn supervise(
    request: OwnedFd,
    line: &OwnedFd,
    descriptors: Vec<OwnedFd>,
    limits: &CageLimits,
) -> io::Result<CommandMessage> {
    let start: ProgramRequest = serde_json::from_slice(&launcher_protocol::read_sealed(request)?)?;
    set_child_subreaper(Some(getpid()))?;
    let signals = sys::child_signal_fd()?;
    let (standard, terminal) = standard_fds(&start, descriptors)?;
    let program = sys::spawn(|| {
        let error = become_program(&start, &standard, line, terminal.as_ref(), limits);
        let word = CommandMessage::NotStarted(error.raw_os_error().unwrap_or(libc::EIO));
        // As above; and the keeper tells the end of this process, which nobody then waits for.
        let _ = launcher_protocol::send(line.as_fd(), &word.bytes(), &[]);
        126
    })?;
    drop((standard, terminal));
    let (mut asked, mut told) = (false, None);
    loop {
        let mut fds = [PollFd::new(&signals, PollFlags::IN), PollFd::new(line, PollFlags::IN)];
        match poll(&mut fds, None) {
            Err(Errno::INTR) => continue,
            ready => ready?,
        };
        let heard = !fds[1].revents().is_empty();
        // Emptied before looking, so that a child that ends meanwhile wakes us again.
        let mut pending = [0; 1024];
        while rustix::io::read(&signals, &mut pending).is_ok_and(|read| read == pending.len()) {}
        told = told.or(reap(program)?);
        // What a command leaves running is none of our business, unless its time is over.
        if let Some(word) = told
            && (!asked || children().is_empty())
        {
            if limits.watched_memory.is_some() && memory_watch::is_full(memory_watch::count_threads(), limits.processes)
            {
                // What ended it may have been that it could start nothing more; and as above.
                let _ = launcher_protocol::send(line.as_fd(), &CommandMessage::ProcessTableFull.bytes(), &[]);
            }
            return Ok(word);
        }
        if heard {
            match receive_message(line) {
                Some(CommandMessage::Terminate) => {
                    asked = true;
                    // It may have left its group, or ended: the next word is not as polite.
                    let _ = kill_process_group(program, Signal::TERM);
                }
                _ => return Ok(kill_tree(program)),
            }
        }
    }
}

fn receive_message(line: &OwnedFd) -> Option<CommandMessage> {
    let (bytes, _) = launcher_protocol::receive_up_to(line.as_fd(), CommandMessage::SIZE).ok()?;
    CommandMessage::parse(bytes.try_into().ok()?)
}

/// Collects whoever has ended, and tells if the program is among them.
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

/// Ends the program and everything that came from it: whoever loses its parent becomes a child of this process.
fn kill_tree(program: Pid) -> CommandMessage {
    let until = Instant::now() + KILL_TIMEOUT;
    let mut word = CommandMessage::Killed(Signal::KILL.as_raw());
    while Instant::now() < until {
        let children = children();
        for child in &children {
            // Those that ended in between are collected below.
            let _ = kill_process(*child, Signal::KILL);
        }
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == program => word = exit_message(status),
                Ok(Some(_)) | Err(Errno::INTR) => (),
                Err(_) => return word,
                Ok(None) => break,
            }
        }
        std::thread::sleep(if children.is_empty() { TICK } else { TICK / 5 });
    }
    // It makes processes faster than they can be found one by one: nothing else in the cage is spared then. The silent
    // end of the keepers tells the supervisors of all commands.
    sys::kill_all();
    sys::exit(1)
}

fn children() -> Vec<Pid> {
    let own = getpid().as_raw_nonzero();
    let list = fs::read_to_string(format!("/proc/{own}/task/{own}/children")).unwrap_or_default();
    list.split_whitespace().filter_map(|word| Pid::from_raw(word.parse().ok()?)).collect()
}

/// Returns what the program's three standard descriptors are to be, and the other side of its terminal.
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

/// Becomes the program; returns only when that failed.
fn become_program(
    start: &ProgramRequest,
    standard: &[OwnedFd; 3],
    line: &OwnedFd,
    terminal: Option<&OwnedFd>,
    limits: &CageLimits,
) -> io::Error {
    match take_terminal(standard, line, terminal).and_then(|()| prepare_process(start, standard, limits)) {
        Ok(()) => exec_program(start),
        Err(error) => error,
    }
}

/// Begins a session, with the terminal if there is one, and only then hands out the other side of it: a key that is
/// pressed earlier would reach nobody.
fn take_terminal([input, ..]: &[OwnedFd; 3], line: &OwnedFd, terminal: Option<&OwnedFd>) -> io::Result<()> {
    setsid()?;
    let Some(master) = terminal else { return Ok(()) };
    rustix::process::ioctl_tiocsctty(input)?;
    launcher_protocol::send(line.as_fd(), &CommandMessage::Terminal.bytes(), &[master.as_fd()])
}

fn prepare_process(start: &ProgramRequest, standard: &[OwnedFd; 3], limits: &CageLimits) -> io::Result<()> {
    let [input, output, errors] = standard;
    // The three may lie in one another's places: they are copied above them first.
    let high = |fd: &OwnedFd| rustix::io::fcntl_dupfd_cloexec(fd, 10);
    for (fd, at) in [(high(input)?, 0), (high(output)?, 1), (high(errors)?, 2)] {
        sys::install_fd(fd.as_fd(), at)?;
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
    sys::reset_signals();
    if limits.three_descriptors {
        sys::set_cloexec_from(3)
    } else {
        sys::clear_cloexec(3..LEAKED_FD_END);
        Ok(())
    }
}

/// Finds the program where its own `PATH` says, and becomes it.
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
        let error = sys::execve(&program, &argv, &env);
        match error.raw_os_error() {
            // Like a shell: look on, but remember that something of this name was there.
            Some(libc::ENOENT | libc::ENOTDIR) => (),
            Some(libc::EACCES) => answer = error,
            _ => return error,
        }
    }
    answer
}
