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

use super::super::plan::Limits;
use super::super::wire::{self, Start, Word};
use super::{sys, watch};

/// How long a tree that is being ended may resist before everything in the cage is.
const PATIENCE: Duration = Duration::from_secs(5);
/// What an ending tree is given between two looks.
const TICK: Duration = Duration::from_millis(5);

/// Up to here descriptors are looked for, in a cage that leaves them open on purpose.
const LEAKED: i32 = 64;

/// Keeps one program. The process exists for nothing else and never returns.
pub(super) fn main(request: OwnedFd, line: &OwnedFd, descriptors: Vec<OwnedFd>, limits: &Limits) -> ! {
    let word = match keep(request, line, descriptors, limits) {
        Ok(word) => word,
        Err(error) => Word::NotStarted(error.raw_os_error().unwrap_or(libc::EIO)),
    };
    // Nobody to tell it to: then nobody waits either.
    let _ = wire::send(line.as_fd(), &word.bytes(), &[]);
    sys::exit(0)
}

fn keep(request: OwnedFd, line: &OwnedFd, descriptors: Vec<OwnedFd>, limits: &Limits) -> io::Result<Word> {
    let start: Start = serde_json::from_slice(&wire::unsealed(request)?)?;
    set_child_subreaper(Some(getpid()))?;
    let signals = sys::child_signals()?;
    let (standard, terminal) = standard(&start, descriptors)?;
    let program = sys::spawn(|| {
        let error = become_program(&start, &standard, line, terminal.as_ref(), limits);
        let word = Word::NotStarted(error.raw_os_error().unwrap_or(libc::EIO));
        // As above; and the keeper tells the end of this process, which nobody then waits for.
        let _ = wire::send(line.as_fd(), &word.bytes(), &[]);
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
            if limits.watched_memory.is_some() && watch::is_full(watch::threads(), limits.processes) {
                // What ended it may have been that it could start nothing more; and as above.
                let _ = wire::send(line.as_fd(), &Word::Full.bytes(), &[]);
            }
            return Ok(word);
        }
        if heard {
            match hear(line) {
                Some(Word::Ask) => {
                    asked = true;
                    // It may have left its group, or ended: the next word is not as polite.
                    let _ = kill_process_group(program, Signal::TERM);
                }
                _ => return Ok(end_tree(program)),
            }
        }
    }
}

fn hear(line: &OwnedFd) -> Option<Word> {
    let (bytes, _) = wire::receive_up_to(line.as_fd(), Word::SIZE).ok()?;
    Word::parse(bytes.try_into().ok()?)
}

/// Collects whoever has ended, and tells if the program is among them.
fn reap(program: Pid) -> io::Result<Option<Word>> {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid == program => return Ok(Some(ended(status))),
            Ok(Some(_)) | Err(Errno::INTR) => (),
            Ok(None) | Err(Errno::CHILD) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        }
    }
}

fn ended(status: WaitStatus) -> Word {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => Word::Exited(code),
        (None, signal) => Word::Killed(signal.unwrap_or(0)),
    }
}

/// Ends the program and everything that came from it: whoever loses its parent becomes a child of this process.
fn end_tree(program: Pid) -> Word {
    let until = Instant::now() + PATIENCE;
    let mut word = Word::Killed(Signal::KILL.as_raw());
    while Instant::now() < until {
        let children = children();
        for child in &children {
            // Those that ended in between are collected below.
            let _ = kill_process(*child, Signal::KILL);
        }
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == program => word = ended(status),
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
fn standard(start: &Start, descriptors: Vec<OwnedFd>) -> io::Result<([OwnedFd; 3], Option<OwnedFd>)> {
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
    start: &Start,
    standard: &[OwnedFd; 3],
    line: &OwnedFd,
    terminal: Option<&OwnedFd>,
    limits: &Limits,
) -> io::Error {
    match take_terminal(standard, line, terminal).and_then(|()| prepare(start, standard, limits)) {
        Ok(()) => run(start),
        Err(error) => error,
    }
}

/// Begins a session, with the terminal if there is one, and only then hands out the other side of it: a key that is
/// pressed earlier would reach nobody.
fn take_terminal([input, ..]: &[OwnedFd; 3], line: &OwnedFd, terminal: Option<&OwnedFd>) -> io::Result<()> {
    setsid()?;
    let Some(master) = terminal else { return Ok(()) };
    rustix::process::ioctl_tiocsctty(input)?;
    wire::send(line.as_fd(), &Word::Terminal.bytes(), &[master.as_fd()])
}

fn prepare(start: &Start, standard: &[OwnedFd; 3], limits: &Limits) -> io::Result<()> {
    let [input, output, errors] = standard;
    // The three may lie in one another's places: they are copied above them first.
    let high = |fd: &OwnedFd| rustix::io::fcntl_dupfd_cloexec(fd, 10);
    for (fd, at) in [(high(input)?, 0), (high(output)?, 1), (high(errors)?, 2)] {
        sys::install(fd.as_fd(), at)?;
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
    sys::plain_signals();
    if limits.three_descriptors {
        sys::end_with_program(3)
    } else {
        sys::stay_with_program(3..LEAKED);
        Ok(())
    }
}

/// Finds the program where its own `PATH` says, and becomes it.
fn run(start: &Start) -> io::Error {
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
