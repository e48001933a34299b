//! Watches what a sandbox takes of the host's disk, where no quota does it: cheap looks at the free space, and a count of
//! the sandbox's own files only when that space goes.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, StatVfs, fstat, open, openat, statat, statfs, statvfs};

use super::live::Live;
use crate::Limit;

const LOOK: Duration = Duration::from_millis(250);
/// A cage that has stood this long is counted once, to know how near the limit it begins.
const SETTLED: Duration = Duration::from_secs(2);
/// What every entry costs beside its content.
const ENTRY: u64 = 4096;
/// The host keeps at least this much, or a fiftieth of the disk if that is less.
const FLOOR: u64 = 1 << 30;
/// A sandbox that has or took no more than this is not what filled the disk.
const LITTLE: u64 = FLOOR / 16;
/// So many new files are worth a count.
const FILES: u64 = 20_000;
/// So many bytes always are, however near the limit.
const LEAST: u64 = 1 << 20;
/// Directories that lie deeper are not looked into, but noticed.
const DEPTH: usize = 4096;
/// Where the size of a sandbox that held too much is written down.
const NOTE: &str = "disk";
const TMPFS: u64 = 0x0102_1994;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Free {
    bytes: u64,
    files: u64,
    total: u64,
}

impl Free {
    fn new(found: &StatVfs) -> Self {
        Self {
            bytes: found.f_bavail.saturating_mul(found.f_frsize),
            files: found.f_ffree,
            total: found.f_blocks.saturating_mul(found.f_frsize),
        }
    }

    fn is_low(self) -> bool {
        self.bytes < FLOOR.min(self.total / 50)
    }
}

/// What a folder holds, and whether some of it could not be seen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Usage {
    bytes: u64,
    hidden: bool,
}

/// The disk under one cage.
#[derive(Debug)]
pub(super) struct Disk {
    folder: PathBuf,
    most: u64,
    launcher: Option<u32>,
    /// What was free when the cage was built.
    first: Free,
    known: Mutex<Known>,
}

#[derive(Debug, Clone, Copy)]
struct Known {
    /// What was free at the last count, what was counted, and when the next count is due at the earliest.
    free: Free,
    used: Option<u64>,
    /// What the sandbox held when it was last ended for holding too much: it must stay usable to be emptied.
    start: u64,
    rest: Instant,
    over: bool,
}

impl Disk {
    /// Looks at the disk under a folder before anything runs over it. `None` when nothing can be known about it.
    pub(super) fn new(folder: &Path, most: u64, launcher: Option<u32>) -> Option<Self> {
        let first = Free::new(&statvfs(folder).ok()?);
        let start = fs::read_to_string(folder.join(NOTE)).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        let known = Known { free: first, used: None, start, rest: Instant::now(), over: false };
        Some(Self { folder: folder.to_owned(), most, launcher, first, known: Mutex::new(known) })
    }

    fn known(&self) -> Known {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether so much has gone that the sandbox's own files are worth a count.
    fn is_suspect(&self, now: Free) -> bool {
        let known = self.known();
        if known.used.is_none() && known.rest.elapsed() > SETTLED {
            return true;
        }
        // The nearer the limit, the closer the look.
        let left = self.most.saturating_sub(known.used.unwrap_or(0));
        let step = (self.most / 8).min(left / 2).max(LEAST);
        let lost = known.free.bytes.saturating_sub(now.bytes) > step;
        now.is_low() || lost || known.free.files.saturating_sub(now.files) > FILES.min(step / ENTRY)
    }

    /// Looks whether the sandbox has too much, counting only when the host's free space gives a reason to.
    pub(super) async fn is_over(self: &Arc<Self>) -> bool {
        let Ok(found) = statvfs(&self.folder) else { return false };
        let now = Free::new(&found);
        if !self.is_suspect(now) {
            return false;
        }
        let this = self.clone();
        // A count that fails is no reason to end anything.
        tokio::task::spawn_blocking(move || this.count(now)).await.unwrap_or(false)
    }

    /// Counts, and returns whether it is too much.
    fn count(&self, now: Free) -> bool {
        let began = Instant::now();
        let known = self.known();
        let counted = usage(&self.folder, self.most.max(known.start));
        let mut used = counted.bytes.saturating_add(self.launcher.map_or(0, nameless));
        let lost = self.first.bytes.saturating_sub(now.bytes);
        if counted.hidden {
            // What it does not let us see is as much as went missing.
            used = used.max(known.start.saturating_add(lost));
        }
        let start = if used <= self.most { 0 } else { known.start };
        if start != known.start {
            // Emptied. One that is not there is as good.
            let _ = fs::remove_file(self.folder.join(NOTE));
        }
        let over = used > self.most.max(start) || (now.is_low() && used.max(lost) > LITTLE);
        let rest = Instant::now() + began.elapsed() * 4;
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) =
            Known { free: now, used: Some(used), start, rest, over };
        over
    }

    /// Writes down what a sandbox holds that was ended for holding too much. Nothing may run in it.
    pub(super) fn remember(&self) {
        if self.known().over {
            let used = usage(&self.folder, u64::MAX).bytes;
            // Not written, it may be ended once more while it is being emptied.
            let _ = fs::write(self.folder.join(NOTE), used.to_string());
        }
    }
}

/// Ends the cage when its folder holds too much, or the host's disk runs out because of it.
pub(super) async fn watch(live: Weak<Live>, disk: Arc<Disk>) {
    loop {
        tokio::time::sleep(LOOK).await;
        // Not kept alive by being watched.
        let Some(live) = live.upgrade().filter(|live| live.stands()) else { return };
        if disk.known().rest > Instant::now() {
            continue;
        }
        if disk.is_over().await {
            live.note(Limit::Disk);
            live.end().await;
            return;
        }
    }
}

/// Counts what lies below a folder, giving up as soon as it is more than `most`.
fn usage(folder: &Path, most: u64) -> Usage {
    const FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
    let mut used = Usage::default();
    let mut linked = BTreeSet::new();
    let Ok(top) = open(folder, FLAGS, Mode::empty()) else { return used };
    // By descriptors, down by name and up by `..`: a path can be longer than what the kernel takes, and one descriptor
    // for every level more than what this process may have.
    let (mut here, mut levels) = (top, Vec::new());
    let mut entered = true;
    loop {
        if entered {
            let Some(level) = count_entries(&here, &mut used, &mut linked) else {
                used.hidden = true;
                return used;
            };
            levels.push(level);
        }
        entered = false;
        let depth = levels.len();
        let Some(level) = levels.last_mut() else { return used };
        if used.bytes > most {
            return used;
        }
        let next = match level.inner.pop() {
            Some(_) if depth >= DEPTH => {
                used.hidden = true;
                continue;
            }
            Some(name) => openat(&here, name.as_c_str(), FLAGS, Mode::empty()),
            None => {
                levels.pop();
                let Some(above) = levels.last() else { return used };
                let up = openat(&here, "..", FLAGS, Mode::empty());
                // Moved meanwhile: what is above now is not what we came from.
                if !up.as_ref().is_ok_and(|up| identity(up) == Some(above.identity)) {
                    used.hidden = true;
                    return used;
                }
                here = up.unwrap_or(here);
                continue;
            }
        };
        match next {
            Ok(inner) => (here, entered) = (inner, true),
            Err(rustix::io::Errno::NOENT) => (),
            Err(_) => used.hidden = true,
        }
    }
}

/// A directory on the way to where the count is, and those in it that are still to be counted.
struct Level {
    identity: (u64, u64),
    inner: Vec<std::ffi::CString>,
}

fn identity(directory: &OwnedFd) -> Option<(u64, u64)> {
    fstat(directory).ok().map(|found| (found.st_dev, found.st_ino))
}

/// Counts what lies in one directory.
fn count_entries(here: &OwnedFd, used: &mut Usage, linked: &mut BTreeSet<(u64, u64)>) -> Option<Level> {
    let mut level = Level { identity: identity(here)?, inner: Vec::new() };
    for entry in Dir::read_from(here).ok()?.flatten() {
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        // Not following links: what they lead to is not the sandbox's.
        let Ok(found) = statat(here, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        let directory = FileType::from_raw_mode(found.st_mode).is_dir();
        used.bytes = used.bytes.saturating_add(ENTRY);
        // A file with several names takes its room once.
        if directory || found.st_nlink < 2 || linked.insert((found.st_dev, found.st_ino)) {
            used.bytes = used.bytes.saturating_add(u64::try_from(found.st_blocks).unwrap_or(0) * 512);
        }
        if directory {
            level.inner.push(name.to_owned());
        }
    }
    Some(level)
}

/// Counts the files on disk that have lost their last name and are still open somewhere below a process.
fn nameless(launcher: u32) -> u64 {
    let mut seen = BTreeSet::new();
    let mut bytes: u64 = 0;
    let mut processes = vec![launcher];
    while let Some(process) = processes.pop() {
        for entry in fs::read_dir(format!("/proc/{process}/fd")).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(found) = fs::metadata(&path) else { continue };
            if found.is_file() && found.nlink() == 0 && seen.insert((found.dev(), found.ino())) {
                // Files in memory have no names either, and are counted as memory.
                let memory = statfs(&path).is_ok_and(|on| u64::try_from(on.f_type) == Ok(TMPFS));
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
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn counts_files_and_content_and_follows_no_link() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("inner");
        fs::create_dir(&inner).unwrap();
        for n in 0..10 {
            fs::write(inner.join(n.to_string()), vec![1; 10_000]).unwrap();
        }
        std::os::unix::fs::symlink("/usr", inner.join("link")).unwrap();
        let used = usage(folder.path(), u64::MAX);
        assert!((12 * ENTRY + 100_000..12 * ENTRY + 300_000).contains(&used.bytes) && !used.hidden, "{used:?}");
        assert!(usage(folder.path(), 5000).bytes > 5000);
        assert_eq!(usage(&folder.path().join("none"), 1), Usage::default());
    }

    #[test]
    fn another_name_is_not_another_file() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a"), vec![1; 1 << 20]).unwrap();
        for n in 0..10 {
            fs::hard_link(folder.path().join("a"), folder.path().join(n.to_string())).unwrap();
        }
        let used = usage(folder.path(), u64::MAX);
        assert!(used.bytes < 2 << 20, "{used:?}");
    }

    #[test]
    fn what_cannot_be_seen_is_noticed() {
        let folder = tempfile::tempdir().unwrap();
        let mut here = open(folder.path(), OFlags::PATH, Mode::empty()).unwrap();
        for _ in 0..(DEPTH + 2) {
            rustix::fs::mkdirat(&here, "x".repeat(200), Mode::RWXU).unwrap();
            here = openat(&here, "x".repeat(200), OFlags::PATH, Mode::empty()).unwrap();
        }
        let used = usage(folder.path(), u64::MAX);
        assert!(used.hidden && used.bytes > DEPTH as u64 * ENTRY, "{used:?}");
        crate::files::remove_tree(&folder.path().join("x".repeat(200))).unwrap();
        if !rustix::process::geteuid().is_root() {
            let folder = tempfile::tempdir().unwrap();
            let locked = folder.path().join("locked");
            fs::create_dir(&locked).unwrap();
            fs::set_permissions(&locked, fs::Permissions::from_mode(0o000)).unwrap();
            assert!(usage(folder.path(), u64::MAX).hidden);
        }
    }

    #[test]
    fn a_file_without_a_name_is_found() {
        let mut file = tempfile::tempfile_in(".").unwrap();
        file.write_all(&vec![1; 1 << 20]).unwrap();
        assert!(nameless(std::process::id()) >= 1 << 20);
    }
}
