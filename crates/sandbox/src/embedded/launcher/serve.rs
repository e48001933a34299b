//! What process 1 does all its life: starts programs when the supervisor asks, lets the kernel reap, watches memory where
//! nobody else does, and ends, with everything in the cage, when the supervisor is gone.

use std::fs;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::super::plan::Limits;
use super::super::wire::{self, Said, Word};
use super::{keeper, sys};

/// How often memory is looked at where no cgroup holds it.
const LOOK: Duration = Duration::from_millis(200);

pub(super) fn forever(ctl: &OwnedFd, limits: &Limits) {
    sys::ignore_children();
    let mut watch = limits.watched_memory.map(|most| Watch { most, processes: limits.processes, told: None });
    loop {
        let mut fds = [PollFd::new(ctl, PollFlags::IN)];
        let patience = watch.as_ref().map(|_| Timespec::try_from(LOOK).expect("a short time"));
        match poll(&mut fds, patience.as_ref()) {
            Ok(0) => watch.as_mut().map_or((), |watch| watch.look(ctl)),
            Ok(_) => match wire::receive(ctl.as_fd()) {
                Ok((bytes, _)) if bytes.is_empty() => return,
                Ok((_, descriptors)) => start(descriptors, limits),
                Err(_) => return,
            },
            Err(Errno::INTR) => (),
            Err(_) => return,
        }
    }
}

/// Starts a keeper for what the supervisor asks to run.
fn start(descriptors: Vec<OwnedFd>, limits: &Limits) {
    let mut descriptors = descriptors.into_iter();
    let (Some(request), Some(line)) = (descriptors.next(), descriptors.next()) else { return };
    match sys::fork() {
        Ok(None) => keeper::main(request, &line, descriptors.collect(), limits),
        Ok(Some(_)) => (),
        Err(error) => {
            let word = Word::NotStarted(error.raw_os_error().unwrap_or(0));
            // A supervisor that has gone away meanwhile ends this cage anyway.
            let _ = wire::send(line.as_fd(), &word.bytes(), &[]);
        }
    }
}

/// Memory and processes of the whole cage, where no cgroup counts them.
struct Watch {
    most: u64,
    processes: u64,
    told: Option<Instant>,
}

impl Watch {
    fn look(&mut self, ctl: &OwnedFd) {
        let (processes, bytes) = usage();
        if bytes > self.most {
            sys::kill_all();
            tell(ctl, &Said::Limit { processes: false, used: bytes });
        } else if processes + processes / 16 >= self.processes && self.told.is_none_or(|at| at.elapsed() > 4 * LOOK) {
            self.told = Some(Instant::now());
            tell(ctl, &Said::Limit { processes: true, used: processes });
        }
    }
}

fn tell(ctl: &OwnedFd, said: &Said) {
    let bytes = serde_json::to_vec(said).unwrap_or_default();
    // Nobody to tell it to means that the end is near.
    let _ = wire::send(ctl.as_fd(), &bytes, &[]);
}

/// Returns how many processes there are and how many bytes are theirs alone.
fn usage() -> (u64, u64) {
    let page = rustix::param::page_size() as u64;
    let (mut processes, mut pages) = (0, 0);
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        if !entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit) {
            continue;
        }
        processes += 1;
        let Ok(statm) = fs::read_to_string(entry.path().join("statm")) else { continue };
        let mut numbers = statm.split(' ').skip(1).map(|word| word.parse::<u64>().unwrap_or(0));
        let (resident, shared) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        pages += resident.saturating_sub(shared);
    }
    (processes, pages * page)
}
