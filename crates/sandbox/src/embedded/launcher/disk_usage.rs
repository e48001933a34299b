//! Measures a folder as root of its own user namespace: an ordinary user cannot read a folder that the agent has
//! locked, but root of a namespace can, without changing anything in it.

use std::fs;
use std::io;
use std::process::ExitCode;

use rustix::process::{Signal, getgid, getuid, set_parent_process_death_signal};

use super::super::disk_usage::{self, DiskUsage};
use super::syscalls;

/// The name under which the counter is started.
pub(in super::super) const COUNTER_NAME: &str = "ralph-count";

/// Counts the folder on its standard input, up to the bytes in its only argument, and prints the result.
pub(in super::super) fn main() -> ExitCode {
    let Ok(usage) = measure_as_root() else { return ExitCode::from(125) };
    match serde_json::to_writer(io::stdout(), &usage) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(125),
    }
}

fn measure_as_root() -> io::Result<DiskUsage> {
    let most = std::env::args().nth(1).and_then(|word| word.parse().ok());
    let most = most.ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))?;
    let top = syscalls::take_inherited_fd(0)?;
    // If the parent dies, nobody reads the result.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let (uid, gid) = (getuid().as_raw(), getgid().as_raw());
    syscalls::unshare_user()?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {uid} 1\n"))?;
    fs::write("/proc/self/gid_map", format!("0 {gid} 1\n"))?;
    Ok(disk_usage::measure(top, most))
}
