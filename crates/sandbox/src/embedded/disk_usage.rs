//! Measures the disk usage of a sandbox's folder, even if a command inside tried to hide it.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fstat, openat, statat};
use serde::{Deserialize, Serialize};

/// What every entry costs in addition to its content.
pub(super) const ENTRY_COST: u64 = 4096;
/// Deeper directories are not read, but reported as hidden.
const MAX_DEPTH: usize = 4096;
/// How directories are opened to be counted.
pub(super) const OPEN_DIR_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// The size of a folder, and whether some of it could not be read.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DiskUsage {
    pub(super) bytes: u64,
    pub(super) hidden: bool,
}

/// Counts everything below a folder, and stops as soon as it is more than `most`.
pub(super) fn measure(top: OwnedFd, most: u64) -> DiskUsage {
    let mut used = DiskUsage::default();
    let mut linked = BTreeSet::new();
    // By descriptors, down by name and up by `..`: a path can be longer than the kernel accepts, and one descriptor for
    // every level can be more than this process may open.
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
            Some(_) if depth >= MAX_DEPTH => {
                used.hidden = true;
                continue;
            }
            Some(name) => openat(&here, name.as_c_str(), OPEN_DIR_FLAGS, Mode::empty()),
            None => {
                levels.pop();
                let Some(above) = levels.last() else { return used };
                let up = openat(&here, "..", OPEN_DIR_FLAGS, Mode::empty());
                // Moved meanwhile: the parent is not the directory we came from.
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

/// A directory on the path to the current one, and its subdirectories that are still to be counted.
struct PendingDirectory {
    identity: (u64, u64),
    inner: Vec<std::ffi::CString>,
}

fn identity(directory: &OwnedFd) -> Option<(u64, u64)> {
    fstat(directory).ok().map(|found| (found.st_dev, found.st_ino))
}

/// Counts the entries of one directory.
fn count_entries(here: &OwnedFd, used: &mut DiskUsage, linked: &mut BTreeSet<(u64, u64)>) -> Option<PendingDirectory> {
    let mut level = PendingDirectory { identity: identity(here)?, inner: Vec::new() };
    for entry in Dir::read_from(here).ok()?.flatten() {
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        // Links are not followed: their targets do not belong to the sandbox.
        let Ok(found) = statat(here, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        let directory = FileType::from_raw_mode(found.st_mode).is_dir();
        used.bytes = used.bytes.saturating_add(ENTRY_COST);
        // A file with several names takes its space once.
        if directory || found.st_nlink < 2 || linked.insert((found.st_dev, found.st_ino)) {
            used.bytes = used.bytes.saturating_add(u64::try_from(found.st_blocks).unwrap_or(0) * 512);
        }
        if directory {
            level.inner.push(name.to_owned());
        }
    }
    Some(level)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use rustix::fs::open;

    use super::*;

    fn count(folder: &Path, most: u64) -> DiskUsage {
        measure(open(folder, OPEN_DIR_FLAGS, Mode::empty()).unwrap(), most)
    }

    #[test]
    fn counts_files_and_content_and_follows_no_link() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("inner");
        fs::create_dir(&inner).unwrap();
        for n in 0..10 {
            fs::write(inner.join(n.to_string()), vec![1; 10_000]).unwrap();
        }
        std::os::unix::fs::symlink("/usr", inner.join("link")).unwrap();
        let used = count(folder.path(), u64::MAX);
        assert!(
            (12 * ENTRY_COST + 100_000..12 * ENTRY_COST + 300_000).contains(&used.bytes) && !used.hidden,
            "{used:?}"
        );
        assert!(count(folder.path(), 5000).bytes > 5000);
    }

    #[test]
    fn hard_links_are_counted_once() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("a"), vec![1; 1 << 20]).unwrap();
        for n in 0..10 {
            fs::hard_link(folder.path().join("a"), folder.path().join(n.to_string())).unwrap();
        }
        let used = count(folder.path(), u64::MAX);
        assert!(used.bytes < 2 << 20, "{used:?}");
    }

    #[test]
    fn unreadable_directories_are_reported_as_hidden() {
        let folder = tempfile::tempdir().unwrap();
        let mut here = open(folder.path(), OFlags::PATH, Mode::empty()).unwrap();
        for _ in 0..(MAX_DEPTH + 2) {
            rustix::fs::mkdirat(&here, "x".repeat(200), Mode::RWXU).unwrap();
            here = openat(&here, "x".repeat(200), OFlags::PATH, Mode::empty()).unwrap();
        }
        let used = count(folder.path(), u64::MAX);
        assert!(used.hidden && used.bytes > MAX_DEPTH as u64 * ENTRY_COST, "{used:?}");
        crate::files::remove_tree(&folder.path().join("x".repeat(200))).unwrap();
        if !rustix::process::geteuid().is_root() {
            let folder = tempfile::tempdir().unwrap();
            let locked = folder.path().join("locked");
            fs::create_dir(&locked).unwrap();
            fs::set_permissions(&locked, fs::Permissions::from_mode(0o000)).unwrap();
            assert!(count(folder.path(), u64::MAX).hidden);
        }
    }
}
