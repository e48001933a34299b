//! Records which cages run for a sandbox: a lock while a cage exists, and a file with the launcher's process number by
//! which another process can end it.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::sandbox_dirs::host_error;
use crate::{Error, random_name};

const LOCK_FILE: &str = "lock";
const PID_FILE_PREFIX: &str = "cage-";
const CGROUP_PREFIX: &str = "ralph-";
/// How long a killed cage may take to disappear.
const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// Locks a sandbox for a cage. A sandbox with layers can have one cage at a time; one with plain folders any number.
pub(super) fn lock(id: &str, folder: &Path, alone: bool) -> Result<SandboxLock, Error> {
    let how = if alone { FlockOperation::NonBlockingLockExclusive } else { FlockOperation::NonBlockingLockShared };
    let path = folder.join(LOCK_FILE);
    let file =
        OpenOptions::new().create(true).append(true).mode(0o600).open(&path).map_err(host_error("lock", &path))?;
    match flock(&file, how) {
        Ok(()) => {
            if alone {
                // No other process holds the lock, so a cage that still has a file here belongs to a dead owner and is
                // about to end.
                end_all_cages(id, folder)?;
            }
            Ok(SandboxLock(file))
        }
        Err(rustix::io::Errno::WOULDBLOCK) => Err(Error::Busy { id: id.to_owned() }),
        Err(errno) => Err(host_error("lock", &path)(errno.into())),
    }
}

/// A lock on a sandbox.
#[derive(Debug)]
pub(super) struct SandboxLock(File);

impl Drop for SandboxLock {
    fn drop(&mut self) {
        // Unlocked explicitly: closing is not enough while a process that another thread is starting has a copy of the
        // descriptor.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

/// A cage's file in the folder of its sandbox, removed when this value is dropped.
#[derive(Debug)]
pub(super) struct CagePidFile {
    path: PathBuf,
    _lock: SandboxLock,
}

impl CagePidFile {
    pub(super) fn write(folder: &Path, launcher: Option<u32>, lock: SandboxLock) -> io::Result<Self> {
        remove_dead_pid_files(folder);
        let path = folder.join(format!("{PID_FILE_PREFIX}{}", random_name::random()));
        let pid = launcher.unwrap_or(0);
        fs::write(&path, format!("{pid} {}\n", start_time(pid).unwrap_or(0)))?;
        Ok(Self { path, _lock: lock })
    }
}

impl Drop for CagePidFile {
    fn drop(&mut self) {
        // The folder may have been moved to the trash meanwhile, and the file is removed with it.
        let _ = fs::remove_file(&self.path);
    }
}

/// Returns the cage files in a folder, each with the launcher's process number and start time.
fn pid_files(folder: &Path) -> Vec<(PathBuf, Option<(u64, u64)>)> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(PID_FILE_PREFIX))
        .map(|entry| entry.path());
    paths
        .map(|path| {
            let text = fs::read_to_string(&path).unwrap_or_default();
            let mut words = text.split_whitespace().map(|word| word.parse().ok());
            let launcher = words.next().flatten().zip(words.next().flatten());
            (path, launcher)
        })
        .collect()
}

/// Removes the files of cages that have ended.
fn remove_dead_pid_files(folder: &Path) {
    for (path, launcher) in pid_files(folder) {
        let lives = |(pid, since)| u32::try_from(pid).is_ok_and(|pid| is_alive(pid, since));
        // A file that cannot be parsed may be one that is being written.
        if launcher.is_some_and(|launcher| !lives(launcher)) {
            // Another process may have removed it already, most likely its owner.
            let _ = fs::remove_file(path);
        }
    }
}

/// Ends every cage that has a file in the folder.
pub(super) fn end_all_cages(id: &str, folder: &Path) -> Result<(), Error> {
    let mut left = 0;
    for (path, launcher) in pid_files(folder) {
        if launcher.is_some_and(|(pid, since)| !end_launcher(pid, since)) {
            left += 1;
            continue;
        }
        // As above.
        let _ = fs::remove_file(path);
    }
    if left == 0 { Ok(()) } else { Err(Error::Unkillable { id: id.to_owned(), count: left }) }
}

/// Ends a launcher, if the process number still belongs to it. Returns whether it is gone.
fn end_launcher(pid: u64, since: u64) -> bool {
    let Some(process) = u32::try_from(pid).ok().filter(|pid| *pid > 0) else { return true };
    let number = i32::try_from(process).ok().and_then(Pid::from_raw);
    let Some(Ok(held)) = number.map(|pid| pidfd_open(pid, PidfdFlags::empty())) else { return true };
    // Checked after the pidfd is open: from here on the number cannot pass to another process unnoticed.
    if !is_alive(process, since) {
        return true;
    }
    // Process 1 first: the outer process exits once every process in the cage has ended, which its own death would not
    // show.
    let asked = init_process(process).is_some_and(|first| pidfd_send_signal(&first, Signal::KILL).is_ok());
    if (asked && is_gone_within(process, since, KILL_TIMEOUT / 4)) || pidfd_send_signal(&held, Signal::KILL).is_err() {
        return !is_alive(process, since);
    }
    is_gone_within(process, since, KILL_TIMEOUT)
}

/// Returns process 1 of the cage that a launcher has built or is building.
fn init_process(launcher: u32) -> Option<std::os::fd::OwnedFd> {
    let children = fs::read_to_string(format!("/proc/{launcher}/task/{launcher}/children")).ok()?;
    let child = Pid::from_raw(children.split_whitespace().next()?.parse().ok()?)?;
    let held = pidfd_open(child, PidfdFlags::empty()).ok()?;
    // Checked again after the pidfd is open: a number that is still the launcher's only child was not reused.
    let again = fs::read_to_string(format!("/proc/{launcher}/task/{launcher}/children")).ok()?;
    (again == children).then_some(held)
}

fn is_gone_within(process: u32, since: u64, timeout: Duration) -> bool {
    let until = Instant::now() + timeout;
    while is_alive(process, since) {
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    true
}

/// Returns whether the process with this start time is still running. One that is dead and only waits to be reaped by
/// its parent counts as gone.
fn is_alive(process: u32, since: u64) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let dead = stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with(['Z', 'X']));
    !dead && parse_start_time(&stat) == Some(since)
}

/// Returns when a process was started, in the kernel's ticks.
fn start_time(pid: u32) -> Option<u64> {
    parse_start_time(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

fn parse_start_time(stat: &str) -> Option<u64> {
    stat.rsplit(") ").next()?.split(' ').nth(19)?.parse().ok()
}

/// Returns a name for a control group that identifies its owner.
pub(super) fn cgroup_name() -> String {
    let pid = std::process::id();
    format!("{CGROUP_PREFIX}{pid}-{}-{}", start_time(pid).unwrap_or(0), random_name::random())
}

/// Returns whether a control group was created by a ralph process that is dead.
pub(super) fn is_dead_cgroup(name: &str) -> bool {
    let Some(rest) = name.strip_prefix(CGROUP_PREFIX) else { return false };
    let mut parts = rest.split('-');
    let (Some(Ok(pid)), Some(Ok(since))) = (parts.next().map(str::parse), parts.next().map(str::parse)) else {
        return false;
    };
    !is_alive(pid, since)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroup_names_identify_dead_owners() {
        assert!(!is_dead_cgroup(&cgroup_name()));
        assert!(is_dead_cgroup("ralph-1-999999999999-abc"));
        assert!(!is_dead_cgroup("ralph-host"));
        assert!(!is_dead_cgroup("user.slice"));
    }

    #[test]
    fn reused_process_numbers_are_not_killed() {
        let own = std::process::id();
        assert!(end_launcher(u64::from(own), 1), "this would have killed the test itself");
        assert!(end_launcher(0, 0));
    }
}
