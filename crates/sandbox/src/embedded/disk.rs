//! Watches what a sandbox takes of the host's disk, where no quota does it: cheap looks at the free space, and a count of
//! the sandbox's own files only when that space goes.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Weak;
use std::time::Duration;

use rustix::fs::{statfs, statvfs};

use super::live::Live;
use crate::Limit;

const LOOK: Duration = Duration::from_millis(250);
/// What every entry costs beside its content.
const ENTRY: u64 = 4096;
/// The host keeps at least this much, or a fiftieth of the disk if that is less.
const FLOOR: u64 = 1 << 30;
/// So many new files are worth a count.
const FILES: u64 = 20_000;

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
    let Some(mut last) = free(&folder) else { return };
    loop {
        tokio::time::sleep(LOOK).await;
        // Not kept alive by being watched.
        let Some(live) = live.upgrade().filter(|live| live.stands()) else { return };
        let Some(now) = free(&folder) else { return };
        let low = now.bytes < FLOOR.min(now.total / 50);
        let taken = last.bytes.saturating_sub(now.bytes) > most / 8 || last.files.saturating_sub(now.files) > FILES;
        if !low && !taken {
            continue;
        }
        let (counted, launcher) = (folder.clone(), live.launcher);
        let count = move || usage(&counted, most).saturating_add(launcher.map_or(0, nameless));
        let Ok(used) = tokio::task::spawn_blocking(count).await else { return };
        last = now;
        // A full disk is only this sandbox's doing if it holds something worth speaking of.
        if used > most || (low && used > FLOOR / 16) {
            live.note(Limit::Disk);
            live.end().await;
            return;
        }
    }
}

/// Counts what lies below a folder, giving up as soon as it is more than `most`.
pub(super) fn usage(folder: &Path, most: u64) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    let mut used: u64 = 0;
    let mut open = vec![folder.to_owned()];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            // Not following links: what they lead to is not the sandbox's.
            let Ok(found) = entry.metadata() else { continue };
            used = used.saturating_add(ENTRY).saturating_add(found.blocks().saturating_mul(512));
            if found.is_dir() {
                open.push(entry.path());
            }
        }
        if used > most {
            break;
        }
    }
    used
}

/// Counts files without a name that a process or its descendants hold open: they take space and are in no folder.
fn nameless(first: u32) -> u64 {
    use std::os::unix::fs::MetadataExt as _;
    const IN_MEMORY: i64 = 0x0102_1994;
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
            if !gone || statfs(entry.path()).is_ok_and(|kind| kind.f_type as i64 == IN_MEMORY) {
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
        let used = usage(folder.path(), u64::MAX);
        assert!((12 * ENTRY + 100_000..12 * ENTRY + 300_000).contains(&used), "{used}");
        assert!(usage(folder.path(), 5000) > 5000);
        assert_eq!(usage(&folder.path().join("none"), 1), 0);
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
        let disk = statfs(folder.path()).unwrap().f_type as i64 != 0x0102_1994;
        assert_eq!(nameless(std::process::id()) >= before + (3 << 20), disk);
    }
}
