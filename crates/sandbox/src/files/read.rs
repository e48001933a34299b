//! Reads and lists files of a sandbox and copies them to the host.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, OFlags, statat};
use rustix::io::Errno;

use super::path::{plain_components, split_file_path};
use super::root_dir::{MissingDirPolicy, RootDir, file_type};
use crate::{DirectoryEntry, DirectoryEntryKind, Error};

/// The most entries that `list` returns of one directory; an agent can create millions.
pub const MAX_ENTRIES: usize = 100_000;

/// Returns the bytes of a regular file of at most `cap` bytes.
pub fn read(root: &RootDir, path: &Path, cap: u64) -> Result<Vec<u8>, Error> {
    let file = open(root, path, cap)?;
    let mut bytes = Vec::new();
    // One byte more than allowed, to detect a file that has grown since its size was read.
    file.take(cap.saturating_add(1)).read_to_end(&mut bytes).map_err(|source| root.file_error("read", path, source))?;
    if bytes.len() as u64 > cap {
        return Err(Error::TooLarge { path: path.to_owned(), cap });
    }
    Ok(bytes)
}

/// Copies a regular file of at most `cap` bytes to a host path that must not exist yet; only the user may read it
/// there.
pub fn copy_out(root: &RootDir, path: &Path, host: &Path, cap: u64) -> Result<u64, Error> {
    let from = open(root, path, cap)?;
    let failed = |doing| move |source| Error::HostFile { doing, path: host.to_owned(), source };
    let mut to = OpenOptions::new().write(true).create_new(true).mode(0o600).open(host).map_err(failed("create"))?;
    let copied = match io::copy(&mut from.take(cap.saturating_add(1)), &mut to) {
        Ok(copied) if copied <= cap => return Ok(copied),
        Ok(_) => Error::TooLarge { path: path.to_owned(), cap },
        Err(source) => failed("write")(source),
    };
    // A partial copy must not look like a complete one.
    std::fs::remove_file(host).map_err(failed("remove"))?;
    Err(copied)
}

/// Lists a directory, sorted by name. Names that are not UTF-8 are shown with replacement characters.
pub fn list(root: &RootDir, path: &Path) -> Result<Vec<DirectoryEntry>, Error> {
    let failed = |errno: Errno| root.file_error("list", path, errno);
    let here = root.walk(path, &plain_components(path)?, MissingDirPolicy::Fail, "list")?;
    let mut entries = Vec::new();
    for entry in Dir::read_from(&here).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        if entries.len() == MAX_ENTRIES {
            return Err(Error::TooMany { path: path.to_owned(), cap: MAX_ENTRIES });
        }
        let stat = match statat(&here, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => continue,
            Err(errno) => return Err(failed(errno)),
        };
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        let (kind, size) = match file_type(&stat) {
            FileType::RegularFile => (DirectoryEntryKind::File, size),
            FileType::Directory => (DirectoryEntryKind::Directory, 0),
            FileType::Symlink => (DirectoryEntryKind::Link, size),
            _ => (DirectoryEntryKind::Other, 0),
        };
        entries.push(DirectoryEntry { name: String::from_utf8_lossy(name).into_owned(), kind, size });
    }
    entries.sort();
    Ok(entries)
}

/// Opens a regular file of at most `cap` bytes, to be read in chunks.
pub(crate) fn open(root: &RootDir, path: &Path, cap: u64) -> Result<File, Error> {
    let (parents, name) = split_file_path(path)?;
    let here = root.walk(path, &parents, MissingDirPolicy::Fail, "read")?;
    let file = root.open_regular(&here, name, path, OFlags::RDONLY, "read")?;
    let size = file.metadata().map_err(|source| root.file_error("read", path, source))?.len();
    if size > cap {
        return Err(Error::TooLarge { path: path.to_owned(), cap });
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn cap_holds_for_files_that_report_no_size() {
        // Files in `/proc` report a size of zero, like a file that grows after its size was read.
        let root = RootDir::open("t", Path::new("/proc/self"))
            .unwrap_or_else(|_| RootDir::open("t", &fs::canonicalize("/proc/self").unwrap()).unwrap());
        assert_eq!(read(&root, Path::new("comm"), 64).unwrap(), fs::read("/proc/self/comm").unwrap());
        let refused = read(&root, Path::new("status"), 10).unwrap_err();
        assert_eq!(refused.to_string(), "`status` is larger than 10 bytes");
        let host = tempfile::tempdir().unwrap();
        let to = host.path().join("status");
        let refused = copy_out(&root, Path::new("status"), &to, 10).unwrap_err();
        assert_eq!(refused.to_string(), "`status` is larger than 10 bytes");
        assert!(!to.exists());
    }

    #[test]
    fn largest_possible_cap_does_not_overflow() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("f"), "abc").unwrap();
        let root = RootDir::open("t", folder.path()).unwrap();
        assert_eq!(read(&root, Path::new("f"), u64::MAX).unwrap(), b"abc");
        assert_eq!(read(&root, Path::new("f"), 3).unwrap(), b"abc");
    }

    #[test]
    fn sockets_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(folder.path().join("s")).unwrap();
        let root = RootDir::open("t", folder.path()).unwrap();
        let refused = read(&root, Path::new("s"), 10).unwrap_err();
        assert_eq!(refused.to_string(), "refused `s`: it is not a regular file");
    }
}
