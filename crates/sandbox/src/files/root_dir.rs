//! Holds an open directory and walks from it without following links.

use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Stat, Uid, fchown, fstat, mkdirat, open, openat, stat, statat};
use rustix::io::Errno;

use super::path::{plain_components, refused, split_file_path};
use crate::Error;

const OPEN_DIR_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

pub(super) const SYMLINK_IN_PATH: &str = "a part of the path is a symbolic link";

/// An open directory, which stays the same one even when its path comes to name another.
#[derive(Debug)]
pub struct RootDir {
    fd: OwnedFd,
    id: String,
    /// The owner of new files, if that is not the user of this process.
    owner: Option<(Uid, Gid)>,
}

/// What the walk does when a directory is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MissingDirPolicy {
    Fail,
    Make,
}

impl RootDir {
    /// Opens a host directory, which itself must not be a link, on behalf of sandbox `id`.
    pub fn open(id: &str, directory: &Path) -> Result<Self, Error> {
        match open(directory, OPEN_DIR_FLAGS, Mode::empty()) {
            Ok(fd) => Ok(Self::new(id, fd)),
            Err(errno) => Err(Error::Host { doing: "open", path: directory.to_owned(), source: errno.into() }),
        }
    }

    /// Wraps a directory that is open already.
    pub fn new(id: &str, fd: OwnedFd) -> Self {
        // Only root can change the owner of a file; other users always own what they create.
        let privileged = rustix::process::geteuid().is_root();
        let owner = fstat(&fd).ok().map(|stat| (Uid::from_raw(stat.st_uid), Gid::from_raw(stat.st_gid)));
        Self { fd, id: id.to_owned(), owner: owner.filter(|(uid, _)| privileged && !uid.is_root()) }
    }

    /// Makes the owner of the directory the owner of what the host just created, so that commands inside can change it.
    pub(crate) fn chown_to_owner(&self, made: impl AsFd) -> Result<(), Errno> {
        match self.owner {
            Some((uid, gid)) => fchown(made, Some(uid), Some(gid)),
            None => Ok(()),
        }
    }

    /// Returns whether `directory` still leads to this directory.
    pub fn is_still_at(&self, directory: &Path) -> bool {
        match (fstat(&self.fd), stat(directory)) {
            (Ok(ours), Ok(there)) => is_same_file(&ours, &there),
            _ => false,
        }
    }

    /// Restores the usual permissions of the directory's owner, which commands inside may have removed.
    pub fn restore_owner_access(&self) {
        let all = Mode::RWXU;
        if fstat(&self.fd).is_ok_and(|stat| !Mode::from_raw_mode(stat.st_mode).contains(all)) {
            // If this fails, the next access reports the error.
            let _ = rustix::fs::fchmod(&self.fd, all);
        }
    }

    /// Checks that `path` leads to a directory without any link on the way.
    pub fn check_directory(&self, path: &Path) -> Result<(), Error> {
        self.walk(path, &plain_components(path)?, MissingDirPolicy::Fail, "enter").map(drop)
    }

    /// Opens the directory the names lead to.
    pub(super) fn walk(
        &self,
        path: &Path,
        names: &[&OsStr],
        missing: MissingDirPolicy,
        doing: &'static str,
    ) -> Result<OwnedFd, Error> {
        // Opened again instead of duplicated: duplicates would share one read position for listings.
        let mut here =
            openat(&self.fd, ".", OPEN_DIR_FLAGS, Mode::empty()).map_err(|e| self.file_error(doing, path, e))?;
        for name in names {
            here = match self.open_child_dir(here.as_fd(), name, missing) {
                Ok(next) => next,
                Err(WalkError::Link) => return Err(refused(path, SYMLINK_IN_PATH)),
                Err(WalkError::Failed(errno)) => return Err(self.file_error(doing, path, errno)),
            };
        }
        Ok(here)
    }

    /// Opens a folder in one call where the kernel can; `None` if it does not exist or a link is on the way.
    #[cfg(target_os = "linux")]
    pub(super) fn open_folder(&self, folder: &Path) -> Option<OwnedFd> {
        use rustix::fs::{ResolveFlags, openat2};
        let path = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        match openat2(&self.fd, path, OPEN_DIR_FLAGS, Mode::empty(), resolve) {
            Ok(folder) => Some(folder),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => None,
            // An old kernel, or a filter that does not know the call.
            Err(_) => self.walk_to_folder(folder),
        }
    }

    /// Opens a folder; `None` if it does not exist or a link is on the way.
    #[cfg(not(target_os = "linux"))]
    pub(super) fn open_folder(&self, folder: &Path) -> Option<OwnedFd> {
        self.walk_to_folder(folder)
    }

    fn walk_to_folder(&self, folder: &Path) -> Option<OwnedFd> {
        // The name of a file in it, so that every part of the path is walked.
        let inside = folder.join("x");
        let (parents, _) = split_file_path(&inside).ok()?;
        self.walk(&inside, &parents, MissingDirPolicy::Fail, "open").ok()
    }

    /// Opens a regular file in `here`; a link, pipe, socket or device is refused without being read or waited for.
    pub(super) fn open_regular(
        &self,
        here: &OwnedFd,
        name: &OsStr,
        path: &Path,
        flags: OFlags,
        doing: &'static str,
    ) -> Result<File, Error> {
        // Checked before opening, because opening a device can already have an effect.
        match statat(here, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => check_regular(&stat, path)?,
            Err(Errno::NOENT) if flags.contains(OFlags::CREATE) => (),
            Err(errno) => return Err(self.file_error(doing, path, errno)),
        }
        let guarded = flags | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let fd = match openat(here, name, guarded, Mode::from_bits_truncate(0o644)) {
            Ok(fd) => fd,
            Err(Errno::LOOP | Errno::MLINK) => return Err(refused(path, SYMLINK_IN_PATH)),
            Err(errno) => return Err(self.file_error(doing, path, errno)),
        };
        // Checked again, because the entry may have been swapped in between.
        check_regular(&fstat(&fd).map_err(|errno| self.file_error(doing, path, errno))?, path)?;
        Ok(File::from(fd))
    }

    fn open_child_dir(
        &self,
        here: BorrowedFd<'_>,
        name: &OsStr,
        missing: MissingDirPolicy,
    ) -> Result<OwnedFd, WalkError> {
        let mut opened = openat(here, name, OPEN_DIR_FLAGS, Mode::empty());
        if missing == MissingDirPolicy::Make && matches!(opened, Err(Errno::NOENT)) {
            match mkdirat(here, name, Mode::from_bits_truncate(0o755)) {
                // Another process created it first: whatever it is, the next open checks it.
                Err(Errno::EXIST) => opened = openat(here, name, OPEN_DIR_FLAGS, Mode::empty()),
                Ok(()) => {
                    opened = openat(here, name, OPEN_DIR_FLAGS, Mode::empty());
                    if let Ok(made) = &opened {
                        self.chown_to_owner(made).map_err(WalkError::Failed)?;
                    }
                }
                Err(errno) => return Err(WalkError::Failed(errno)),
            }
        }
        opened.map_err(|errno| {
            // Kernels disagree on the error number for a link, so the entry itself is checked.
            let is_link = matches!(errno, Errno::NOTDIR | Errno::LOOP | Errno::MLINK)
                && statat(here, name, AtFlags::SYMLINK_NOFOLLOW)
                    .is_ok_and(|stat| file_type(&stat) == FileType::Symlink);
            if is_link { WalkError::Link } else { WalkError::Failed(errno) }
        })
    }

    pub(super) fn file_error(&self, doing: &'static str, path: &Path, source: impl Into<std::io::Error>) -> Error {
        Error::File { id: self.id.clone(), doing, path: path.to_owned(), source: source.into() }
    }
}

/// Why the walk could not enter a directory.
enum WalkError {
    Link,
    Failed(Errno),
}

pub(super) fn file_type(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}

/// Refuses everything that is not a regular file.
pub(super) fn check_regular(stat: &Stat, path: &Path) -> Result<(), Error> {
    match file_type(stat) {
        FileType::RegularFile => Ok(()),
        FileType::Symlink => Err(refused(path, SYMLINK_IN_PATH)),
        FileType::Directory => Err(refused(path, "it is a directory")),
        _ => Err(refused(path, "it is not a regular file")),
    }
}

fn is_same_file(a: &Stat, b: &Stat) -> bool {
    a.st_dev == b.st_dev && a.st_ino == b.st_ino
}
