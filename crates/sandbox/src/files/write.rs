//! Writes files of a sandbox: whole files, appended text, directories and copies from the host.
//!
//! A new version is written beside the old one and renamed over it, so no reader ever sees a partial file. There is no
//! `fsync`: this protects against a killed program, not against a power failure.

use std::ffi::OsStr;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, Stat, fchmod, fstat, openat, renameat, statat, unlinkat};
use rustix::io::Errno;

use super::path::{plain_components, split_file_path};
use super::root_dir::{MissingDirPolicy, RootDir, check_regular};
use crate::Error;
use crate::random_name;

const NEW_FILE_MODE: u32 = 0o644;

/// Replaces a whole file, creating missing parent directories. Without `mode` the old permissions stay.
///
/// Only permission bits are set: no file written by the host is ever set-user-id.
pub fn replace(root: &RootDir, path: &Path, bytes: &[u8], mode: Option<u32>) -> Result<(), Error> {
    let (parents, name) = split_file_path(path)?;
    let here = root.walk(path, &parents, MissingDirPolicy::Make, "write")?;
    let old = check_target(root, &here, name, path)?;
    let mut fresh = ReplacementFile::new(root, &here, path)?;
    let written = fresh.file.write_all(bytes).and_then(|()| set_mode(&fresh.file, mode, old.as_ref()));
    written.map_err(|source| root.file_error("write", path, source))?;
    fresh.rename_into_place(root, name, path)
}

/// Appends to a file, creating it and its parent directories if missing.
pub fn append(root: &RootDir, path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let (parents, name) = split_file_path(path)?;
    let here = root.walk(path, &parents, MissingDirPolicy::Make, "append to")?;
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE;
    let mut file = root.open_regular(&here, name, path, flags, "append to")?;
    root.chown_to_owner(&file).map_err(|errno| root.file_error("append to", path, errno))?;
    file.write_all(bytes).map_err(|source| root.file_error("append to", path, source))
}

/// Creates a directory and its missing parents; existing ones are not an error.
pub fn mkdirs(root: &RootDir, path: &Path) -> Result<(), Error> {
    root.walk(path, &plain_components(path)?, MissingDirPolicy::Make, "make").map(drop)
}

/// Copies a regular host file in with its permission bits, without reading it into memory.
pub fn copy_in(root: &RootDir, host: &Path, path: &Path) -> Result<(), Error> {
    let failed = |source: io::Error| Error::HostFile { doing: "read", path: host.to_owned(), source };
    // The host path may be a link, but it must not be a pipe that blocks us.
    let nonblock = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or(0);
    let mut from = OpenOptions::new().read(true).custom_flags(nonblock).open(host).map_err(failed)?;
    let stat = fstat(&from).map_err(|errno| failed(errno.into()))?;
    check_regular(&stat, host)?;
    let (parents, name) = split_file_path(path)?;
    let here = root.walk(path, &parents, MissingDirPolicy::Make, "write")?;
    check_target(root, &here, name, path)?;
    let mut fresh = ReplacementFile::new(root, &here, path)?;
    let written = io::copy(&mut from, &mut fresh.file).and_then(|_| set_mode(&fresh.file, None, Some(&stat)));
    written.map_err(|source| root.file_error("write", path, source))?;
    fresh.rename_into_place(root, name, path)
}

/// Returns what exists at the target, refusing anything but a regular file or nothing.
fn check_target(root: &RootDir, here: &OwnedFd, name: &OsStr, path: &Path) -> Result<Option<Stat>, Error> {
    match statat(here, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => check_regular(&stat, path).map(|()| Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(root.file_error("write", path, errno)),
    }
}

fn set_mode(file: &File, mode: Option<u32>, old: Option<&Stat>) -> io::Result<()> {
    match (mode, old) {
        (Some(mode), _) => file.set_permissions(Permissions::from_mode(mode & 0o777)),
        (None, Some(old)) => {
            let bits = Mode::from_raw_mode(old.st_mode) & (Mode::RWXU | Mode::RWXG | Mode::RWXO);
            Ok(fchmod(file, bits)?)
        }
        (None, None) => file.set_permissions(Permissions::from_mode(NEW_FILE_MODE)),
    }
}

/// The next version of a file under a temporary name; removed unless it is renamed into place.
struct ReplacementFile<'a> {
    here: &'a OwnedFd,
    name: String,
    file: File,
    is_in_place: bool,
}

impl<'a> ReplacementFile<'a> {
    fn new(root: &RootDir, here: &'a OwnedFd, path: &Path) -> Result<Self, Error> {
        let name = format!(".ralph-{}.tmp", random_name::random());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(here, &name, flags, Mode::RUSR | Mode::WUSR) {
            Ok(fd) => {
                let fresh = Self { here, name, file: File::from(fd), is_in_place: false };
                root.chown_to_owner(&fresh.file).map_err(|errno| root.file_error("write", path, errno))?;
                Ok(fresh)
            }
            Err(errno) => Err(root.file_error("write", path, errno)),
        }
    }

    fn rename_into_place(mut self, root: &RootDir, name: &OsStr, path: &Path) -> Result<(), Error> {
        // A link that appeared at the target meanwhile is replaced, not followed.
        renameat(self.here, &self.name, self.here, name).map_err(|errno| root.file_error("write", path, errno))?;
        self.is_in_place = true;
        Ok(())
    }
}

impl Drop for ReplacementFile<'_> {
    fn drop(&mut self) {
        if !self.is_in_place {
            // The write has failed already and the caller gets that error; a leftover temporary file matters less.
            let _ = unlinkat(self.here, &self.name, AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn names_in(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn failed_writes_leave_nothing_behind() {
        let folder = tempfile::tempdir().unwrap();
        let root = RootDir::open("t", folder.path()).unwrap();
        fs::create_dir(folder.path().join("d")).unwrap();
        let outside = tempfile::NamedTempFile::new().unwrap();
        symlink(outside.path(), folder.path().join("l")).unwrap();
        assert!(replace(&root, Path::new("d"), b"x", None).is_err());
        assert!(replace(&root, Path::new("l"), b"x", None).is_err());
        let missing = copy_in(&root, Path::new("/nowhere/at/all"), Path::new("f")).unwrap_err();
        assert_eq!(missing.to_string(), "could not read the host's file `/nowhere/at/all`");
        let device = copy_in(&root, Path::new("/dev/null"), Path::new("f")).unwrap_err();
        assert_eq!(device.to_string(), "refused `/dev/null`: it is not a regular file");
        assert_eq!(names_in(folder.path()), ["d", "l"]);
        assert_eq!(fs::read(outside.path()).unwrap(), b"");
    }

    #[test]
    fn written_files_are_never_set_user_id() {
        let folder = tempfile::tempdir().unwrap();
        let root = RootDir::open("t", folder.path()).unwrap();
        let file = folder.path().join("f");
        replace(&root, Path::new("f"), b"x", Some(0o4755)).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o755);
        fs::set_permissions(&file, Permissions::from_mode(0o6711)).unwrap();
        replace(&root, Path::new("f"), b"y", None).unwrap();
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o7777, 0o711);
    }
}
