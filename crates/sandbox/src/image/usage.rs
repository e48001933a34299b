//! How much of the disk an unpacked image takes.

use std::collections::HashSet;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, Stat, fstat, open, openat, statat};

use super::tree::{DIRECTORY, entries, os};

/// Returns the bytes a tree takes on disk; a file with several names counts once. Links are not followed.
pub(super) fn measure(directory: &Path) -> io::Result<u64> {
    let root = open(directory, DIRECTORY, Mode::empty())?;
    let mut seen = HashSet::new();
    Ok(blocks(&fstat(&root)?).saturating_add(inside(root.as_fd(), &mut seen)?))
}

fn inside(directory: BorrowedFd<'_>, seen: &mut HashSet<u64>) -> io::Result<u64> {
    let mut bytes = 0_u64;
    for name in entries(directory)? {
        let stat = statat(directory, os(&name), AtFlags::SYMLINK_NOFOLLOW)?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            let inner = openat(directory, os(&name), DIRECTORY, Mode::empty())?;
            bytes = bytes.saturating_add(inside(inner.as_fd(), seen)?);
        } else if stat.st_nlink > 1 && !seen.insert(stat.st_ino) {
            continue;
        }
        bytes = bytes.saturating_add(blocks(&stat));
    }
    Ok(bytes)
}

fn blocks(stat: &Stat) -> u64 {
    u64::try_from(stat.st_blocks).unwrap_or(0).saturating_mul(512)
}
