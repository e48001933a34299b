//! What process 1 does all its life: starts programs when the supervisor asks, lets the kernel reap, watches memory where
//! nobody else does, and ends, with everything in the cage, when the supervisor is gone.

use std::fs;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::super::plan::Limits;
use super::super::wire::{self, Said, Word};
use super::{keeper, sys};

/// How often memory is looked at where no cgroup holds it.
const LOOK: Duration = Duration::from_millis(200);

/// Where files lie in memory.
const SCRATCH: [&str; 4] = ["/tmp", "/var/tmp", "/dev/shm", "/run"];

pub(super) fn forever(ctl: &OwnedFd, limits: &Limits) {
    sys::ignore_children();
    let mut watch = limits.watched_memory.map(|most| Watch { most, processes: limits.processes, told: None });
    let mut next = Instant::now() + LOOK;
    loop {
        // By the clock, not when nothing else is to be done: a busy supervisor must not keep us from looking.
        if let Some(watch) = watch.as_mut().filter(|_| Instant::now() >= next) {
            if watch.look(ctl) == Then::End {
                return;
            }
            next = Instant::now() + LOOK;
        }
        let mut fds = [PollFd::new(ctl, PollFlags::IN)];
        let left = next.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        let patience = watch.as_ref().map(|_| Timespec::try_from(left).expect("a short time"));
        match poll(&mut fds, patience.as_ref()) {
            Ok(0) | Err(Errno::INTR) => (),
            Ok(_) => match wire::receive(ctl.as_fd()) {
                Ok((bytes, _)) if bytes.is_empty() => return,
                Ok((_, descriptors)) => start(descriptors, limits),
                Err(_) => return,
            },
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

/// What follows from a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    GoOn,
    /// Only the end of the cage frees what its files in memory take.
    End,
}

impl Watch {
    fn look(&mut self, ctl: &OwnedFd) -> Then {
        let (processes, bytes) = usage(resident);
        let files = scratch();
        // A page that many share was counted for each of them: looked at closely only when it matters.
        if bytes + files > self.most {
            let used = usage(proportional).1 + files;
            if used > self.most {
                sys::kill_all();
                tell(ctl, &Said::Limit { processes: false, used });
                return if files > self.most / 2 { Then::End } else { Then::GoOn };
            }
        }
        if processes + processes / 16 >= self.processes && self.told.is_none_or(|at| at.elapsed() > 4 * LOOK) {
            self.told = Some(Instant::now());
            tell(ctl, &Said::Limit { processes: true, used: processes });
        }
        Then::GoOn
    }
}

fn tell(ctl: &OwnedFd, said: &Said) {
    let bytes = serde_json::to_vec(said).unwrap_or_default();
    // Nobody to tell it to means that the end is near.
    let _ = wire::send(ctl.as_fd(), &bytes, &[]);
}

/// Returns how many processes there are and how many bytes they hold, each as told by `bytes`.
fn usage(bytes: fn(&Path) -> Option<u64>) -> (u64, u64) {
    let (mut processes, mut sum) = (0, 0_u64);
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        if entry.file_name().as_encoded_bytes().iter().all(u8::is_ascii_digit) {
            processes += 1;
            sum = sum.saturating_add(bytes(&entry.path()).unwrap_or(0));
        }
    }
    (processes, sum)
}

/// Returns what a process holds that is no file on disk, counting what is shared in full.
fn resident(process: &Path) -> Option<u64> {
    let status = fs::read_to_string(process.join("status")).ok()?;
    Some(kilobytes(&status, &["RssAnon:", "RssShmem:"]))
}

/// Returns the same with its part only of what is shared; in full for one that hides itself.
fn proportional(process: &Path) -> Option<u64> {
    match fs::read_to_string(process.join("smaps_rollup")) {
        Ok(table) => Some(kilobytes(&table, &["Pss_Anon:", "Pss_Shmem:"])),
        Err(_) => resident(process),
    }
}

fn kilobytes(table: &str, names: &[&str]) -> u64 {
    let numbers = table.lines().filter_map(|line| {
        let number = names.iter().find_map(|name| line.strip_prefix(name))?;
        number.trim().trim_end_matches("kB").trim().parse::<u64>().ok()
    });
    numbers.sum::<u64>().saturating_mul(1024)
}

/// Returns what the files in memory take.
fn scratch() -> u64 {
    let used = |place: &&'static str| {
        let found = rustix::fs::statvfs(*place).ok()?;
        Some(found.f_blocks.saturating_sub(found.f_bfree).saturating_mul(found.f_frsize))
    };
    SCRATCH.iter().filter_map(used).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_process() {
        let status = "Name:\tx\nVmRSS:\t 5000 kB\nRssAnon:\t    12 kB\nRssFile:\t 8 kB\nRssShmem:\t   4 kB\n";
        assert_eq!(kilobytes(status, &["RssAnon:", "RssShmem:"]), 16 * 1024);
        assert_eq!(kilobytes("RssAnon: x kB\n", &["RssAnon:"]), 0);
        assert!(usage(resident).1 > 0);
        assert!(proportional(Path::new("/proc/self")).is_some_and(|bytes| bytes > 0));
    }
}
