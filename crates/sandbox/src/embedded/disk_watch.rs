//! Watches what a sandbox takes of the host's disk, where no quota does it: cheap looks at the free space, and a count of
//! the sandbox's own files when that space goes, or now and then: what others free at the same time must not hide it.

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
/// How long a cage may go uncounted, and how much of the time counting may take where there is much to count.
const MAX_COUNT_AGE: Duration = Duration::from_secs(1);
const COUNT_REST_FACTOR: u32 = 50;
/// The host keeps at least this much, or a fiftieth of the disk if that is less.
const MIN_FREE_BYTES: u64 = 1 << 30;
/// A sandbox that has or took no more than this is not what filled the disk.
const INSIGNIFICANT_BYTES: u64 = MIN_FREE_BYTES / 16;
/// So many new files are worth a count.
const NEW_FILES_STEP: u64 = 20_000;
/// So many bytes always are, however near the limit.
const MIN_BYTES_STEP: u64 = 1 << 20;
/// Where the size of a sandbox that held too much is written down.
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

/// The disk under one cage.
#[derive(Debug)]
pub(super) struct DiskWatch {
    folder: PathBuf,
    most: u64,
    /// The process all others of the cage come from, and the program that can count what is locked.
    launcher_pid: Option<u32>,
    launcher: Arc<LauncherProgram>,
    /// What was free when the cage was built.
    initial_free: FreeSpace,
    last_count: Mutex<LastDiskCount>,
}

#[derive(Debug, Clone, Copy)]
struct LastDiskCount {
    /// What was free at the last count, and what was counted.
    free: FreeSpace,
    used: u64,
    /// What the sandbox held when it was last ended for holding too much: it must stay usable to be emptied.
    tolerated_bytes: u64,
    /// When the next count may be, and when it must.
    earliest_count: Instant,
    latest_count: Instant,
    over: bool,
}

impl DiskWatch {
    /// Looks at the disk under a folder before anything runs over it. `None` when nothing can be known about it.
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

    /// Returns whether so much has gone, or so much time, that the sandbox's own files are worth a count.
    fn needs_count(&self, now: FreeSpace) -> bool {
        let known = self.last_count();
        if Instant::now() >= known.latest_count {
            return true;
        }
        // The nearer the limit, the closer the look.
        let left = self.most.saturating_sub(known.used);
        let step = (self.most / 8).min(left / 2).max(MIN_BYTES_STEP);
        let lost = known.free.bytes.saturating_sub(now.bytes) > step;
        now.is_low() || lost || known.free.files.saturating_sub(now.files) > NEW_FILES_STEP.min(step / ENTRY_COST)
    }

    /// Looks whether the sandbox has too much, counting only when there is a reason to.
    pub(super) async fn is_over_limit(self: &Arc<Self>) -> bool {
        let Ok(found) = statvfs(&self.folder) else { return false };
        let now = FreeSpace::new(&found);
        if !self.needs_count(now) {
            return false;
        }
        let this = self.clone();
        // A count that fails is no reason to end anything.
        tokio::task::spawn_blocking(move || this.count(now)).await.unwrap_or(false)
    }

    /// Counts, and returns whether it is too much.
    fn count(&self, now: FreeSpace) -> bool {
        let began = Instant::now();
        let known = self.last_count();
        let counted = self.measure(self.most.max(known.tolerated_bytes));
        let mut used = counted.bytes.saturating_add(self.launcher_pid.map_or(0, unlinked_bytes));
        let lost = self.initial_free.bytes.saturating_sub(now.bytes);
        if counted.hidden {
            // What it does not let us see is as much as went missing.
            used = used.max(known.tolerated_bytes.saturating_add(lost));
        }
        let start = if used <= self.most { 0 } else { known.tolerated_bytes };
        if start != known.tolerated_bytes {
            // Emptied. One that is not there is as good.
            let _ = fs::remove_file(self.folder.join(EXCESS_FILE));
        }
        let over = used > self.most.max(start) || (now.is_low() && used.max(lost) > INSIGNIFICANT_BYTES);
        let (ended, took) = (Instant::now(), began.elapsed());
        let (rest, due) = (ended + took * 4, ended + MAX_COUNT_AGE.max(took * COUNT_REST_FACTOR));
        *self.last_count.lock().unwrap_or_else(PoisonError::into_inner) =
            LastDiskCount { free: now, used, tolerated_bytes: start, earliest_count: rest, latest_count: due, over };
        over
    }

    /// Counts what lies in the sandbox's folder, giving up as soon as it is more than `most`.
    fn measure(&self, most: u64) -> DiskUsage {
        let top = || open(&self.folder, OPEN_DIR_FLAGS, Mode::empty());
        let Ok(folder) = top() else { return DiskUsage::default() };
        let counted = disk_usage::measure(folder, most);
        if !counted.hidden || counted.bytes > most || rustix::process::geteuid().is_root() {
            return counted;
        }
        // Locked by the agent, who has the same number as we have. One that cannot be asked leaves it hidden.
        let asked = top().map_err(Into::into).and_then(|folder| self.launcher.count_disk_usage(folder, most));
        asked.unwrap_or(counted)
    }

    /// Writes down what a sandbox holds that was ended for holding too much. Nothing may run in it.
    pub(super) fn save_excess(&self) {
        if self.last_count().over {
            let used = self.measure(u64::MAX).bytes;
            // Not written, it may be ended once more while it is being emptied.
            let _ = fs::write(self.folder.join(EXCESS_FILE), used.to_string());
        }
    }
}

/// Ends the cage when its folder holds too much, or the host's disk runs out because of it.
pub(super) async fn watch(live: Weak<RunningCage>, disk: Arc<DiskWatch>) {
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        // Not kept alive by being watched.
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

/// Counts the files on disk that have lost their last name and are still open somewhere below a process.
fn unlinked_bytes(launcher: u32) -> u64 {
    let mut seen = BTreeSet::new();
    let mut bytes: u64 = 0;
    let mut processes = vec![launcher];
    while let Some(process) = processes.pop() {
        for entry in fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(found) = fs::metadata(&path) else { continue };
            if found.is_file() && found.nlink() == 0 && seen.insert((found.dev(), found.ino())) {
                // Files in memory have no names either, and are counted as memory.
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
    fn a_file_without_a_name_is_found() {
        let mut file = tempfile::tempfile_in(".").unwrap();
        file.write_all(&vec![1; 1 << 20]).unwrap();
        assert!(unlinked_bytes(std::process::id()) >= 1 << 20);
    }
}
