//! Counts a folder as the master of everybody in the cage: an ordinary user cannot look into a folder that its own agent
//! has locked, but one that is root in a namespace of its own can, without changing anything in it.

use std::fs;
use std::io;
use std::process::ExitCode;

use rustix::process::{Signal, getgid, getuid, set_parent_process_death_signal};

use super::super::disk_usage::{self, DiskUsage};
use super::sys;

/// The name the counter is started under.
pub(in super::super) const COUNTER_NAME: &str = "ralph-count";

/// Counts the folder it was given as its input, up to the bytes its only argument tells, and prints what it found.
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
    let top = sys::take_inherited_fd(0)?;
    // Nobody waits for the answer to a question of the dead.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    let (uid, gid) = (getuid().as_raw(), getgid().as_raw());
    sys::unshare_user()?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {uid} 1\n"))?;
    fs::write("/proc/self/gid_map", format!("0 {gid} 1\n"))?;
    Ok(disk_usage::measure(top, most))
}
