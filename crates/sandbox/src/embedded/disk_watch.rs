//! Watches a sandbox's disk usage, because no quota limits it: checks the free space, which is cheap, and counts the
//! sandbox's own files when that space shrinks. It also counts at intervals, because space that others free at the same
//! time must not hide the usage.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, StatVfs, open, statfs, statvfs};

use super::cage::RunningCage;
use super::disk_usage::{self, DiskUsage, ENTRY_COST, OPEN_DIR_FLAGS};
use super::launcher_process::LauncherProgram;
use crate::ResourceLimit;

const CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// The longest time between two counts, and the factor that limits the share of time spent counting large sandboxes.
const MAX_COUNT_AGE: Duration = Duration::from_secs(1);
const COUNT_REST_FACTOR: u32 = 50;
/// The host keeps at least this much, or a fiftieth of the disk if that is less.
const MIN_FREE_BYTES: u64 = 1 << 30;
/// A sandbox that holds or took no more than this did not fill the disk.
const INSIGNIFICANT_BYTES: u64 = MIN_FREE_BYTES / 16;
/// This many new files trigger a count.
const NEW_FILES_STEP: u64 = 20_000;
/// Fewer bytes than this never trigger a count, however near the limit.
const MIN_BYTES_STEP: u64 = 1 << 20;
/// The file with the size of a sandbox that exceeded its limit.
const EXCESS_FILE: &str = "disk";
const TMPFS_MAGIC: u64 = 0x0102_1994;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FreeSpace {
    bytes: u64,
    files: u64,
    total: u64,
}

impl FreeSpace {
    fn new(found: &StatVfs) -> Self {
        Self {
            bytes: found.f_bavail.saturating_mul(found.f_frsize),
            files: found.f_ffree,
            total: found.f_blocks.saturating_mul(found.f_frsize),
        }
    }

    fn is_low(self) -> bool {
        self.bytes < MIN_FREE_BYTES.min(self.total / 50)
    }
}

/// Watches the disk usage of one cage.
#[derive(Debug)]
pub(super) struct DiskWatch {
    folder: PathBuf,
    most: u64,
    /// The process that all others of the cage descend from, and the program that can count locked directories.
    launcher_pid: Option<u32>,
    launcher: Arc<LauncherProgram>,
    /// The free space when the cage was built.
    initial_free: FreeSpace,
    last_count: Mutex<LastDiskCount>,
}

#[derive(Debug, Clone, Copy)]
struct LastDiskCount {
    /// The free space at the last count, and the result of that count.
    free: FreeSpace,
    used: u64,
    /// The usage when the cage was last ended for exceeding the limit: the sandbox must stay usable so that files can
    /// be removed.
    tolerated_bytes: u64,
    /// When the next count is allowed, and when it is due.
    earliest_count: Instant,
    latest_count: Instant,
    over: bool,
}

impl DiskWatch {
    /// Reads the free space of a folder's disk before any command runs. `None` when it cannot be read.
    pub(super) fn new(
        folder: &Path,
        most: u64,
        first_process: Option<u32>,
        launcher: Arc<LauncherProgram>,
    ) -> Option<Self> {
        let first = FreeSpace::new(&statvfs(folder).ok()?);
        let start =
            fs::read_to_string(folder.join(EXCESS_FILE)).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        let now = Instant::now();
        let known = LastDiskCount {
            free: first,
            used: 0,
            tolerated_bytes: start,
            earliest_count: now,
            latest_count: now + MAX_COUNT_AGE,
            over: false,
        };
        Some(Self {
            folder: folder.to_owned(),
            most,
            launcher_pid: first_process,
            launcher,
            initial_free: first,
            last_count: Mutex::new(known),
        })
    }

    fn last_count(&self) -> LastDiskCount {
        *self.last_count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether enough space or time has gone since the last count to count the sandbox's files again.
    fn needs_count(&self, now: FreeSpace) -> bool {
        let known = self.last_count();
        if Instant::now() >= known.latest_count {
            return true;
        }
        // The nearer the limit, the smaller the step.
        let left = self.most.saturating_sub(known.used);
        let step = (self.most / 8).min(left / 2).max(MIN_BYTES_STEP);
        let lost = known.free.bytes.saturating_sub(now.bytes) > step;
        now.is_low() || lost || known.free.files.saturating_sub(now.files) > NEW_FILES_STEP.min(step / ENTRY_COST)
    }

    /// Returns whether the sandbox exceeds its limit, counting only when there is a reason to.
    pub(super) async fn is_over_limit(self: &Arc<Self>) -> bool {
        let Ok(found) = statvfs(&self.folder) else { return false };
        let now = FreeSpace::new(&found);
        if !self.needs_count(now) {
            return false;
        }
        let this = self.clone();
        // A failed count is no reason to end the cage.
        tokio::task::spawn_blocking(move || this.count(now)).await.unwrap_or(false)
    }

    /// Counts the files, and returns whether the limit is exceeded.
    fn count(&self, now: FreeSpace) -> bool {
        let began = Instant::now();
        let known = self.last_count();
        let counted = self.measure(self.most.max(known.tolerated_bytes));
        let mut used = counted.bytes.saturating_add(self.launcher_pid.map_or(0, unlinked_bytes));
        let lost = self.initial_free.bytes.saturating_sub(now.bytes);
        if counted.hidden {
            // The hidden part is assumed to be as large as the space that disappeared.
            used = used.max(known.tolerated_bytes.saturating_add(lost));
        }
        let start = if used <= self.most { 0 } else { known.tolerated_bytes };
        if start != known.tolerated_bytes {
            // Below the limit again. A missing file is fine.
            let _ = fs::remove_file(self.folder.join(EXCESS_FILE));
        }
        let over = used > self.most.max(start) || (now.is_low() && used.max(lost) > INSIGNIFICANT_BYTES);
        let (ended, took) = (Instant::now(), began.elapsed());
        let (rest, due) = (ended + took * 4, ended + MAX_COUNT_AGE.max(took * COUNT_REST_FACTOR));
        *self.last_count.lock().unwrap_or_else(PoisonError::into_inner) =
            LastDiskCount { free: now, used, tolerated_bytes: start, earliest_count: rest, latest_count: due, over };
        over
    }

    /// Counts everything in the sandbox's folder, and stops as soon as it is more than `most`.
    fn measure(&self, most: u64) -> DiskUsage {
        let top = || open(&self.folder, OPEN_DIR_FLAGS, Mode::empty());
        let Ok(folder) = top() else { return DiskUsage::default() };
        let counted = disk_usage::measure(folder, most);
        if !counted.hidden || counted.bytes > most || rustix::process::geteuid().is_root() {
            return counted;
        }
        // Locked by the agent, which has our user id. If the privileged counter cannot run, the result stays hidden.
        let asked = top().map_err(Into::into).and_then(|folder| self.launcher.count_disk_usage(folder, most));
        asked.unwrap_or(counted)
    }

    /// Records the size of a sandbox whose cage was ended for exceeding the limit. Nothing may run in it.
    pub(super) fn save_excess(&self) {
        if self.last_count().over {
            let used = self.measure(u64::MAX).bytes;
            // If this fails, the cage may be ended once more while files are being removed.
            let _ = fs::write(self.folder.join(EXCESS_FILE), used.to_string());
        }
    }
}

/// Ends the cage when its folder exceeds the limit, or when it fills the host's disk.
pub(super) async fn watch(live: Weak<RunningCage>, disk: Arc<DiskWatch>) {
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        // A weak reference, so that the watch does not keep the cage alive.
        let Some(live) = live.upgrade().filter(|live| live.is_running()) else { return };
        if disk.last_count().earliest_count > Instant::now() {
            continue;
        }
        if disk.is_over_limit().await {
            live.record_limit(ResourceLimit::Disk);
            live.end().await;
            return;
        }
    }
}

/// Counts the bytes of unlinked files on disk that a process or its descendants still have open.
fn unlinked_bytes(launcher: u32) -> u64 {
    let mut seen = BTreeSet::new();
    let mut bytes: u64 = 0;
    let mut processes = vec![launcher];
    while let Some(process) = processes.pop() {
        for entry in fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(found) = fs::metadata(&path) else { continue };
            if found.is_file() && found.nlink() == 0 && seen.insert((found.dev(), found.ino())) {
                // Files in memory have no names either, and count as memory.
                let memory = statfs(&path).is_ok_and(|on| u64::try_from(on.f_type) == Ok(TMPFS_MAGIC));
                bytes = bytes.saturating_add(if memory { 0 } else { found.blocks().saturating_mul(512) });
            }
        }
        let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children")).unwrap_or_default();
        processes.extend(children.split_whitespace().filter_map(|word| word.parse::<u32>().ok()));
    }
    bytes
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn unlinked_open_files_are_counted() {
        let mut file = tempfile::tempfile_in(".").unwrap();
        file.write_all(&vec![1; 1 << 20]).unwrap();
        assert!(unlinked_bytes(std::process::id()) >= 1 << 20);
    }
}
