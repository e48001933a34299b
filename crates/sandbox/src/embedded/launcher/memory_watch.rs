//! Counts the memory and the processes of the cage in process 1, and enforces their limits, where no control group
//! does.
//!
//! It counts what only the cage can release: memory of processes, files in memory, and unnamed ones. A program can
//! hide some of it from any count (in a message that is not received yet), so the host's free memory is checked too:
//! when that runs out, the processes of the cage are killed first.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::statvfs;

use super::super::launcher_protocol::{self, LauncherMessage};
use super::super::plan::CagePlan;
use super::syscalls;

/// How often to check; a cage in which a check takes long is checked less often.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);
const CHECK_REST_FACTOR: u32 = 4;
/// How often to count processes when there are many.
const BUSY_INTERVAL: Duration = Duration::from_millis(10);
/// The host keeps at least this much, or a thirty-second of its memory if that is less.
const MIN_HOST_MEMORY: u64 = 512 << 20;

pub(super) struct MemoryWatch {
    most: u64,
    processes: u64,
    /// The directories in memory.
    scratch: Vec<String>,
    next_memory_check: Instant,
    next_process_check: Instant,
    last_report: Option<Instant>,
}

impl MemoryWatch {
    /// Watches the limits that a plan leaves to process 1, if any.
    pub(super) fn new(plan: &CagePlan) -> Option<Self> {
        let most = plan.limits.watched_memory?;
        let scratch = plan.scratch.iter().map(|scratch| scratch.target.clone()).collect();
        let next = Instant::now() + CHECK_INTERVAL;
        Some(Self {
            most,
            processes: plan.limits.processes,
            scratch,
            next_memory_check: next,
            next_process_check: next,
            last_report: None,
        })
    }

    /// Returns the time until the next check.
    pub(super) fn time_until_check(&self) -> Duration {
        self.next_memory_check.min(self.next_process_check).saturating_duration_since(Instant::now())
    }

    /// Checks if it is time to; kills everything in the cage when it exceeds its memory.
    pub(super) fn check(&mut self, ctl: &OwnedFd) {
        let began = Instant::now();
        if began >= self.next_process_check {
            self.check_processes(ctl);
        }
        if began < self.next_memory_check {
            return;
        }
        let mut bytes = self.upper_bound();
        if bytes > self.most {
            bytes = self.exact_usage();
        }
        if bytes > self.most || is_host_memory_low() {
            // Reported first: once the command supervisors are killed, the supervisor could not learn the reason.
            send_message(ctl, &LauncherMessage::Limit { processes: false, used: bytes });
            syscalls::kill_all();
        }
        self.next_memory_check = Instant::now() + CHECK_INTERVAL.max(began.elapsed() * CHECK_REST_FACTOR);
    }

    /// Reports a full process table. The kernel does not report a refused fork, so the table is counted, more often
    /// when it fills up.
    fn check_processes(&mut self, ctl: &OwnedFd) {
        let began = Instant::now();
        let threads = count_threads();
        if is_full(threads, self.processes) && self.last_report.is_none_or(|at| at.elapsed() > CHECK_INTERVAL) {
            self.last_report = Some(began);
            send_message(ctl, &LauncherMessage::Limit { processes: true, used: threads });
        }
        let rest = if threads > self.processes / 4 { BUSY_INTERVAL } else { CHECK_INTERVAL };
        self.next_process_check = Instant::now() + rest.max(began.elapsed() * CHECK_REST_FACTOR);
    }

    /// Returns an upper bound of the memory in use: shared memory counts once for each process that shares it.
    fn upper_bound(&self) -> u64 {
        let page = rustix::param::page_size() as u64;
        let resident = |process: &Path| -> u64 {
            let statm = fs::read_to_string(process.join("statm")).unwrap_or_default();
            statm.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0)
        };
        process_dirs().iter().map(|process| resident(process) * page).sum::<u64>() + self.memory_file_bytes()
    }

    /// Returns the memory in use, with shared memory counted once.
    fn exact_usage(&self) -> u64 {
        let (mut own, mut shared) = (0, 0);
        for process in process_dirs() {
            let rollup = fs::read_to_string(process.join("smaps_rollup")).unwrap_or_default();
            let number = |key: &str| kibibytes(&rollup, key);
            match (number("Pss_Anon:"), number("Pss_Shmem:")) {
                (Some(anonymous), Some(shmem)) => (own, shared) = (own + anonymous, shared + shmem),
                // A process that hides its maps still reports this.
                _ => {
                    let status = fs::read_to_string(process.join("status")).unwrap_or_default();
                    own += kibibytes(&status, "RssAnon:").unwrap_or(0);
                    shared += kibibytes(&status, "RssShmem:").unwrap_or(0);
                }
            }
        }
        // Files in memory may be mapped or not: the larger of the two numbers is certainly in use.
        own + shared.max(self.memory_file_bytes())
    }

    /// Returns the size of the files in memory, with a name or without.
    fn memory_file_bytes(&self) -> u64 {
        let scratch = self.scratch.iter().filter_map(|target| statvfs(target.as_str()).ok());
        let named: u64 = scratch.map(|found| (found.f_blocks - found.f_bfree) * found.f_frsize).sum();
        named + memfd_bytes() + sysv_shm_bytes()
    }
}

/// Returns whether a number of threads is close enough to the limit to count as full.
pub(super) fn is_full(threads: u64, most: u64) -> bool {
    threads + most / 8 >= most
}

/// Returns the number of threads in the cage.
pub(super) fn count_threads() -> u64 {
    let one = |process: &Path| -> u64 {
        let stat = fs::read_to_string(process.join("stat")).unwrap_or_default();
        stat.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(17)?.parse().ok()).unwrap_or(1)
    };
    process_dirs().iter().map(|process| one(process)).sum()
}

fn process_dirs() -> Vec<std::path::PathBuf> {
    let number = |name: &std::ffi::OsStr| name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter(|entry| number(&entry.file_name())).map(|entry| entry.path()).collect()
}

/// Counts the bytes of unnamed files in memory that a process has open.
fn memfd_bytes() -> u64 {
    let mut seen = BTreeSet::new();
    let mut bytes = 0;
    for process in process_dirs() {
        for entry in fs::read_dir(process.join("fd")).into_iter().flatten().flatten() {
            let path = entry.path();
            let link = fs::read_link(&path).unwrap_or_default();
            if !link.as_os_str().as_encoded_bytes().starts_with(b"/memfd:") {
                continue;
            }
            if let Ok(found) = fs::metadata(&path)
                && seen.insert((found.dev(), found.ino()))
            {
                bytes += found.blocks() * 512;
            }
        }
    }
    bytes
}

/// Counts the bytes of System V shared memory segments.
fn sysv_shm_bytes() -> u64 {
    let table = fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
    let resident = |line: &str| line.split_whitespace().nth(14).and_then(|word| word.parse::<u64>().ok());
    table.lines().skip(1).filter_map(resident).sum()
}

fn is_host_memory_low() -> bool {
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    match (kibibytes(&memory, "MemTotal:"), kibibytes(&memory, "MemAvailable:")) {
        (Some(total), Some(available)) => available < MIN_HOST_MEMORY.min(total / 32),
        _ => false,
    }
}

fn kibibytes(table: &str, key: &str) -> Option<u64> {
    let number = table.lines().find_map(|line| line.strip_prefix(key))?;
    Some(number.split_whitespace().next()?.parse::<u64>().ok()? << 10)
}

fn send_message(ctl: &OwnedFd, message: &LauncherMessage) {
    let bytes = serde_json::to_vec(message).unwrap_or_default();
    // If this fails, the supervisor is gone and the cage is about to end.
    let _ = launcher_protocol::send(ctl.as_fd(), &bytes, &[]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_from_proc_tables() {
        let table = "Rss:  12 kB\nPss_Anon:           52 kB\nPss_Shmem:\t1 kB\nOdd: x kB\n";
        assert_eq!(kibibytes(table, "Pss_Anon:"), Some(52 << 10));
        assert_eq!(kibibytes(table, "Pss_Shmem:"), Some(1 << 10));
        assert_eq!(kibibytes(table, "Odd:"), None);
        assert_eq!(kibibytes(table, "None:"), None);
        assert!(count_threads() >= 1);
    }

    #[test]
    fn full_within_an_eighth_of_the_limit() {
        let check = |threads, most, want| assert_eq!(is_full(threads, most), want, "{threads} of {most}");
        check(55, 64, false);
        check(56, 64, true);
        check(65, 64, true);
        check(3, 4096, false);
    }
}
