//! Watches what a sandbox takes of the host's disk, where no quota does it: cheap looks at the free space, and a count of
//! the sandbox's own files only when that space goes.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::Weak;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, openat, statat, statfs, statvfs};
use rustix::io::Errno;

use super::live::Live;
use crate::Limit;

const LOOK: Duration = Duration::from_millis(250);
/// A count is made at least this often, if counting is quick.
const EVERY: Duration = Duration::from_secs(2);
/// What every entry costs beside its content.
const ENTRY: u64 = 4096;
/// The host keeps at least this much, or a fiftieth of the disk if that is less.
const FLOOR: u64 = 1 << 30;
/// So many new files are worth a count.
const FILES: u64 = 20_000;
/// Deeper than this no project is, and every level costs a descriptor to count.
const DEEP: usize = 200;
/// What a filesystem in memory says it is.
const IN_MEMORY: i128 = 0x0102_1994;

#[derive(Debug, Clone, Copy)]
struct Free {
    bytes: u64,
    files: u64,
    total: u64,
}

fn free(dir: &Path) -> Option<Free> {
    let found = statvfs(dir).ok()?;
    Some(Free {
        bytes: found.f_bavail.saturating_mul(found.f_frsize),
        files: found.f_ffree,
        total: found.f_blocks.saturating_mul(found.f_frsize),
    })
}

/// Ends the cage when its folder holds more than `most` bytes, or the host's disk runs out because of it.
pub(super) async fn watch(live: Weak<Live>, folder: PathBuf, most: u64) {
    let Some(first) = free(&folder) else { return };
    let mut last = first;
    let (mut counted_at, mut cost) = (Instant::now(), Duration::ZERO);
    loop {
        tokio::time::sleep(LOOK).await;
        // Not kept alive by being watched.
        let Some(live) = live.upgrade().filter(|live| live.stands()) else { return };
        let Some(now) = free(&folder) else { return };
        let low = now.bytes < FLOOR.min(now.total / 50);
        let taken = last.bytes.saturating_sub(now.bytes) > most / 8 || last.files.saturating_sub(now.files) > FILES;
        // Now and then in any case: somebody else may free as much as this one takes. Never a large part of the time.
        let due = counted_at.elapsed() > EVERY.max(cost * 20);
        if !low && !taken && !due {
            continue;
        }
        let began = Instant::now();
        let (counted, launcher) = (folder.clone(), live.launcher);
        let count = move || (usage(&counted, most), launcher.map_or(0, nameless));
        let Ok((found, held)) = tokio::task::spawn_blocking(count).await else { return };
        (counted_at, cost) = (Instant::now(), began.elapsed());
        // Who hides something is charged with all that has gone meanwhile.
        let gone = if found.hidden { first.bytes.saturating_sub(now.bytes) } else { 0 };
        let used = found.bytes.saturating_add(held).saturating_add(gone);
        last = now;
        // A full disk is only this sandbox's doing if it holds something worth speaking of.
        if used > most || (low && used > FLOOR / 16) {
            live.note(Limit::Disk);
            live.end().await;
            return;
        }
    }
}

/// What was found below a folder.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) bytes: u64,
    /// Something could not be counted: a folder that is locked, or deeper than anybody needs.
    pub(super) hidden: bool,
}

/// Counts what lies below a folder, giving up as soon as it is more than `most`. Goes from directory to directory, so
/// that no path is too long and no link leads elsewhere.
pub(super) fn usage(folder: &Path, most: u64) -> Usage {
    let mut found = Usage::default();
    let look = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let enter = |at: &dyn AsFd, name: &Path| openat(at.as_fd(), name, look, Mode::empty()).and_then(Dir::new);
    let mut open: Vec<Dir> = enter(&CWD, folder).into_iter().collect();
    while let Some(here) = open.last_mut() {
        let Some(Ok(entry)) = here.read() else {
            open.pop();
            continue;
        };
        let name = Path::new(OsStr::from_bytes(entry.file_name().to_bytes()));
        if name == Path::new(".") || name == Path::new("..") {
            continue;
        }
        let Ok(at) = here.fd() else { continue };
        let Ok(stat) = statat(at, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        let blocks = u64::try_from(stat.st_blocks).unwrap_or(0);
        found.bytes = found.bytes.saturating_add(ENTRY).saturating_add(blocks.saturating_mul(512));
        if found.bytes > most {
            break;
        }
        if FileType::from_raw_mode(stat.st_mode).is_dir() {
            match enter(&at, name) {
                Ok(below) if open.len() < DEEP => open.push(below),
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => (),
                _ => found.hidden = true,
            }
        }
    }
    found
}

/// Counts files without a name that a process or its descendants hold open: they take space and are in no folder.
fn nameless(first: u32) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let mut seen = BTreeSet::new();
    let mut used: u64 = 0;
    let mut open = vec![first];
    while let Some(process) = open.pop() {
        let place = PathBuf::from(format!("/proc/{process}"));
        for task in fs::read_dir(place.join("task")).into_iter().flatten().flatten() {
            let children = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            open.extend(children.split_whitespace().filter_map(|child| child.parse::<u32>().ok()));
        }
        for entry in fs::read_dir(place.join("fd")).into_iter().flatten().flatten() {
            // Through the descriptor, so that a file without a name is found.
            let Ok(found) = fs::metadata(entry.path()) else { continue };
            let gone = found.is_file() && found.nlink() == 0;
            if !gone || statfs(entry.path()).is_ok_and(|kind| i128::from(kind.f_type) == IN_MEMORY) {
                continue;
            }
            if seen.insert((found.dev(), found.ino())) {
                used = used.saturating_add(found.blocks().saturating_mul(512));
            }
        }
    }
    used
}

#[cfg(test)]
mod tests {
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
        let Usage { bytes: used, hidden } = usage(folder.path(), u64::MAX);
        assert!(!hidden);
        assert!((12 * ENTRY + 100_000..12 * ENTRY + 300_000).contains(&used), "{used}");
        assert!(usage(folder.path(), 5000).bytes > 5000);
        assert_eq!(usage(&folder.path().join("none"), 1), Usage::default());
    }

    #[test]
    fn tells_what_it_cannot_count() {
        let folder = tempfile::tempdir().unwrap();
        let deep: PathBuf = std::iter::repeat_n("d", DEEP + 1).collect();
        fs::create_dir_all(folder.path().join(deep)).unwrap();
        assert!(usage(folder.path(), u64::MAX).hidden);
    }

    #[test]
    fn counts_files_without_a_name() {
        use std::io::Write as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("gone");
        let mut file = fs::File::create(&path).unwrap();
        file.write_all(&vec![1; 3 << 20]).unwrap();
        file.sync_all().unwrap();
        let before = nameless(std::process::id());
        fs::remove_file(&path).unwrap();
        // A folder in memory is not a disk.
        let disk = i128::from(statfs(folder.path()).unwrap().f_type) != IN_MEMORY;
        assert_eq!(nameless(std::process::id()) >= before + (3 << 20), disk);
    }
}
