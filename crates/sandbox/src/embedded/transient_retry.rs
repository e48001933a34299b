//! Repeats a step of building a cage that failed only because the machine is busy.

use std::io;
use std::time::Duration;

use rustix::fd::AsFd;
use rustix::fs::{SealFlags, fcntl_add_seals};
use rustix::io::Errno;

use crate::Error;

/// How often a whole cage is tried again, and the first pause, which doubles.
const RETRIES: u32 = 6;
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// How often sealing is tried again: the pages of a file that was just written may be in use for a moment.
const SEAL_RETRIES: u32 = 200;
const SEAL_PAUSE: Duration = Duration::from_millis(2);

/// Returns whether the same call may succeed a moment later.
fn is_transient(error: &io::Error) -> bool {
    let transient = [Errno::BUSY, Errno::AGAIN, Errno::INTR, Errno::NOMEM].map(Errno::raw_os_error);
    error.raw_os_error().is_some_and(|code| transient.contains(&code))
}

/// Decides how often building a cage is tried again.
#[derive(Debug)]
pub(super) struct TransientRetry {
    left: u32,
    pause: Duration,
}

impl Default for TransientRetry {
    fn default() -> Self {
        Self { left: RETRIES, pause: FIRST_PAUSE }
    }
}

impl TransientRetry {
    /// Waits a moment and returns whether to try again: only if the machine was busy, a bounded number of times.
    pub(super) async fn wait_after(&mut self, error: &Error) -> bool {
        let Error::Cage { id, step, source } = error else { return false };
        if !is_transient(source) || self.left == 0 {
            return false;
        }
        tracing::warn!(sandbox = %id, %step, error = %source, "building the cage is tried again");
        tokio::time::sleep(self.pause).await;
        self.left -= 1;
        self.pause *= 2;
        true
    }
}

/// Seals a file in memory against all changes.
pub(super) fn seal(file: impl AsFd) -> io::Result<()> {
    let seals = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
    for _ in 0..SEAL_RETRIES {
        match fcntl_add_seals(&file, seals) {
            Err(Errno::BUSY | Errno::AGAIN | Errno::INTR) => std::thread::sleep(SEAL_PAUSE),
            other => return Ok(other?),
        }
    }
    Ok(fcntl_add_seals(&file, seals)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cage_error(errno: Errno) -> Error {
        Error::Cage { id: "x".to_owned(), step: "mount".to_owned(), source: errno.into() }
    }

    /// Returns how often a build that fails `failures` times is tried, and whether it succeeds.
    async fn tries(errno: Errno, failures: u32) -> (u32, bool) {
        let mut retry = TransientRetry { left: 5, pause: Duration::from_millis(1) };
        for count in 1..=failures {
            if !retry.wait_after(&cage_error(errno)).await {
                return (count, false);
            }
        }
        (failures + 1, true)
    }

    #[tokio::test]
    async fn only_a_busy_machine_is_tried_again() {
        assert_eq!(tries(Errno::BUSY, 0).await, (1, true));
        for errno in [Errno::BUSY, Errno::AGAIN, Errno::INTR, Errno::NOMEM] {
            assert_eq!(tries(errno, 3).await, (4, true), "{errno:?}");
        }
        assert_eq!(tries(Errno::BUSY, 100).await, (6, false));
        assert_eq!(tries(Errno::PERM, 100).await, (1, false));
    }
}
