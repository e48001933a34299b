//! Measures the disk space of an unpacked image.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, Stat, fstat, open, openat, statat};

use super::tree::{OPEN_DIRECTORY, entry_names, os_str};

/// Returns the bytes that a tree takes on disk; a file with several names counts once. Links are not followed.
pub(super) fn measure(directory: &Path) -> io::Result<u64> {
    let root = open(directory, OPEN_DIRECTORY, Mode::empty())?;
    let mut seen = HashSet::new();
    Ok(allocated_bytes(&fstat(&root)?).saturating_add(measure_children(root.as_fd(), &mut seen)?))
}

fn measure_children(directory: BorrowedFd<'_>, seen: &mut HashSet<u64>) -> io::Result<u64> {
    let mut bytes = 0_u64;
    for name in entry_names(directory)? {
        let stat = statat(directory, os_str(&name), AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            let inner = openat(directory, os_str(&name), OPEN_DIRECTORY, Mode::empty())?;
            bytes = bytes.saturating_add(measure_children(inner.as_fd(), seen)?);
        } else if stat.st_nlink > 1 && !seen.insert(stat.st_ino) {
            continue;
        }
        bytes = bytes.saturating_add(allocated_bytes(&stat));
    }
    Ok(bytes)
}

fn allocated_bytes(stat: &Stat) -> u64 {
    u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512)
}
