//! Tests the crate's guarantees from outside.

#![expect(clippy::print_stderr, reason = "skipped tests are reported")]
#![expect(clippy::disallowed_methods, reason = "tests read the environment they are started in")]
#![expect(clippy::unwrap_used, reason = "a test that cannot continue has to stop")]

mod broken_backends;
#[cfg(target_os = "linux")]
mod embedded;
#[cfg(target_os = "linux")]
mod leftovers;
#[cfg(target_os = "linux")]
mod limits;
mod local;
#[cfg(target_os = "linux")]
mod observed;
#[cfg(target_os = "linux")]
mod owner_death;
#[cfg(target_os = "linux")]
mod program_start;
#[cfg(target_os = "linux")]
mod skip;
#[cfg(target_os = "linux")]
mod snapshots;
#[cfg(target_os = "linux")]
mod terminal;
#[cfg(target_os = "linux")]
mod unprivileged;

use std::time::{Duration, Instant};

/// Waits until a condition holds, and fails with its description if it never does.
#[track_caller]
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(20);
    while !holds() {
        assert!(Instant::now() < until, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns whether a process is alive; one that only waits to be reaped is not.
#[cfg(target_os = "linux")]
fn is_alive(pid: i32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let state = stat.rsplit_once(')').and_then(|(_, fields)| fields.split_ascii_whitespace().next());
    !matches!(state, None | Some("Z" | "X"))
}
