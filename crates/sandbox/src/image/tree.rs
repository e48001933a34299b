//! Builds the directory tree of an image, using only operations on open directories.
//!
//! Every step resolves one name below a directory that is held open, and the kernel never follows a link. This module
//! follows links in the path of an entry (`lib` → `usr/lib`, in many images) itself, inside the tree: an absolute
//! target starts at the tree's root, and `..` goes back along the directories passed, never above the root. The path
//! to the target of a hard link may have no links at all. Nothing is written in place: what an entry replaces is
//! removed first, so a name shared with a lower layer changes nothing there.

use std::cell::Cell;
use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::fs::{
    AtFlags, Dir, FileType, Mode, OFlags, Timespec, Timestamps, fstat, futimens, linkat, mkdirat, open, openat,
    readlinkat, statat, symlinkat, unlinkat, utimensat,
};
use rustix::io::Errno;

use super::ImageLimits;
use super::decompress::LimitExceeded;
use super::pax_header::TarTimestamp;

pub(super) const OPEN_DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const OPEN_NEW_FILE: OFlags =
    OFlags::WRONLY.union(OFlags::CREATE).union(OFlags::EXCL).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// The most links in the path of one entry, like the kernel's own limit.
const MAX_LINKS: usize = 40;
const TOO_MANY_LINKS: &str = "its path goes through too many links";
/// Permissions of a directory that no entry describes.
const IMPLIED_DIR_MODE: u32 = 0o755;

/// Why an entry could not be created.
#[derive(Debug)]
pub(super) enum ImageTreeError {
    Refused(&'static str),
    Io(io::Error),
}

impl From<io::Error> for ImageTreeError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Errno> for ImageTreeError {
    fn from(errno: Errno) -> Self {
        Self::Io(errno.into())
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MissingDirectory {
    Create,
    Ignore,
}

/// Which entries a removal keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeepEntries {
    Nothing,
    /// Entries that the current layer created itself.
    CurrentLayer,
}

#[derive(Debug)]
pub(super) struct ImageTree<'a> {
    root: OwnedFd,
    limits: &'a ImageLimits,
    /// Modification times of directories, set at the end because every new entry changes them. Keyed by inode: a
    /// directory that reuses the inode of a removed one overwrites the entry.
    times: HashMap<u64, TarTimestamp>,
    /// Entries that the current layer created, as directory and name.
    current_layer: HashSet<(u64, Vec<u8>)>,
    /// Entries scanned in order to hide them; limited because a layer can name the same directory again and again.
    entries_scanned: Cell<u64>,
}

/// An open directory of the tree.
struct TreeDirectory {
    directory: OwnedFd,
    inode: u64,
    /// Its depth below the root.
    depth: usize,
}

impl<'a> ImageTree<'a> {
    /// Opens an empty host directory to unpack into.
    pub(super) fn open(directory: &Path, limits: &'a ImageLimits) -> io::Result<Self> {
        let root = open(directory, OPEN_DIRECTORY, Mode::empty())?;
        let times = HashMap::from([(fstat(&root)?.st_ino, TarTimestamp::default())]);
        Ok(Self { root, limits, times, current_layer: HashSet::new(), entries_scanned: Cell::new(0) })
    }

    /// Forgets which entries the previous layer created: for the next layer they are all lower entries.
    pub(super) fn next_layer(&mut self) {
        self.current_layer.clear();
    }

    /// Creates a directory, or sets the permissions of an existing one. The owner can always enter and empty it.
    pub(super) fn directory(&mut self, names: &[&[u8]], mode: u32, mtime: TarTimestamp) -> Result<(), ImageTreeError> {
        let mode = mode & 0o1777 | 0o700;
        let Some((name, parents)) = names.split_last() else {
            self.times.insert(fstat(&self.root)?.st_ino, mtime);
            return Ok(chmod(self.root.try_clone()?, mode)?);
        };
        let place = self.open_or_create(parents)?;
        if place.depth == self.limits.depth {
            return Err(ImageTreeError::Refused("its path is too deep"));
        }
        let opened = match openat(&place.directory, os_str(name), OPEN_DIRECTORY, Mode::empty()) {
            Ok(there) => there,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::MLINK) => {
                self.remove_existing(&place, name)?;
                mkdirat(&place.directory, os_str(name), Mode::RWXU)?;
                openat(&place.directory, os_str(name), OPEN_DIRECTORY, Mode::empty())?
            }
            Err(errno) => return Err(errno.into()),
        };
        self.times.insert(fstat(&opened)?.st_ino, mtime);
        self.current_layer.insert((place.inode, name.to_vec()));
        Ok(chmod(opened, mode)?)
    }

    /// Creates an empty file; [`set_mode_and_time`] sets its permissions and time after it is filled.
    pub(super) fn file(&mut self, names: &[&[u8]]) -> Result<File, ImageTreeError> {
        let (place, name) = self.prepare_entry(names)?;
        Ok(File::from(openat(&place.directory, os_str(name), OPEN_NEW_FILE, Mode::RUSR | Mode::WUSR)?))
    }

    /// Creates a symbolic link. Its target is only data: it is followed only with this tree as the root.
    pub(super) fn symlink(
        &mut self,
        names: &[&[u8]],
        target: &[u8],
        mtime: TarTimestamp,
    ) -> Result<(), ImageTreeError> {
        if target.is_empty() || target.contains(&0) || target.len() > self.limits.path {
            return Err(ImageTreeError::Refused("the target of its link is empty, too long or holds a NUL byte"));
        }
        let (place, name) = self.prepare_entry(names)?;
        symlinkat(os_str(target), &place.directory, os_str(name))?;
        Ok(utimensat(&place.directory, os_str(name), &timestamps(mtime), AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Creates another name for a file or symbolic link that is already in the tree.
    pub(super) fn hardlink(&mut self, names: &[&[u8]], target: &[&[u8]]) -> Result<(), ImageTreeError> {
        const NOTHING: ImageTreeError =
            ImageTreeError::Refused("it is a hard link to something that is not in the image");
        const NOT_A_FILE: ImageTreeError = ImageTreeError::Refused("it is a hard link to something that is not a file");
        let Some((last, parents)) = target.split_last() else { return Err(NOT_A_FILE) };
        let from = match self.open_no_follow(parents) {
            Ok(from) => from,
            Err(Errno::NOENT) => return Err(NOTHING),
            Err(Errno::NOTDIR | Errno::LOOP | Errno::MLINK) => {
                return Err(ImageTreeError::Refused("it is a hard link through something that is not a directory"));
            }
            Err(errno) => return Err(errno.into()),
        };
        let there = match statat(&from, os_str(last), AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Err(NOTHING),
            Err(errno) => return Err(errno.into()),
        };
        if !matches!(FileType::from_raw_mode(there.st_mode), FileType::RegularFile | FileType::Symlink) {
            return Err(NOT_A_FILE);
        }
        let (name, parents) = split_name(names)?;
        let place = self.open_or_create(parents)?;
        let already = statat(&place.directory, os_str(name), AtFlags::SYMLINK_NOFOLLOW)
            .is_ok_and(|here| here.st_ino == there.st_ino && here.st_dev == there.st_dev);
        if !already {
            self.remove_existing(&place, name)?;
            match linkat(&from, os_str(last), &place.directory, os_str(name), AtFlags::empty()) {
                Ok(()) => (),
                // The target was below what this entry replaced.
                Err(Errno::NOENT) => return Err(NOTHING),
                Err(errno) => return Err(errno.into()),
            }
        }
        self.current_layer.insert((place.inode, name.to_vec()));
        Ok(())
    }

    /// Removes what lower layers have at a name, of whatever type.
    pub(super) fn hide(&mut self, names: &[&[u8]]) -> Result<(), ImageTreeError> {
        let (name, parents) = split_name(names)?;
        let Some(place) = self.open_directory(parents, MissingDirectory::Ignore)? else { return Ok(()) };
        Ok(self.remove(place.directory.as_fd(), place.inode, name, KeepEntries::CurrentLayer)?)
    }

    /// Removes what lower layers have in a directory, and keeps the directory.
    pub(super) fn hide_children(&mut self, names: &[&[u8]]) -> Result<(), ImageTreeError> {
        let Some(place) = self.open_directory(names, MissingDirectory::Ignore)? else { return Ok(()) };
        Ok(self.remove_children(place.directory.as_fd(), place.inode, KeepEntries::CurrentLayer)?)
    }

    /// Sets the modification time of every directory from its entry.
    pub(super) fn finish(self) -> io::Result<()> {
        self.set_directory_times(self.root.as_fd())
    }

    fn set_directory_times(&self, directory: BorrowedFd<'_>) -> io::Result<()> {
        for name in entry_names(directory)? {
            match openat(directory, os_str(&name), OPEN_DIRECTORY, Mode::empty()) {
                Ok(inner) => self.set_directory_times(inner.as_fd())?,
                Err(Errno::NOTDIR | Errno::LOOP | Errno::MLINK) => (),
                Err(errno) => return Err(errno.into()),
            }
        }
        match self.times.get(&fstat(directory)?.st_ino) {
            Some(mtime) => Ok(futimens(directory, &timestamps(*mtime))?),
            None => Ok(()),
        }
    }

    /// Removes what an entry replaces, and returns its directory and name.
    fn prepare_entry<'n>(&mut self, names: &[&'n [u8]]) -> Result<(TreeDirectory, &'n [u8]), ImageTreeError> {
        let (name, parents) = split_name(names)?;
        let place = self.open_or_create(parents)?;
        self.remove_existing(&place, name)?;
        self.current_layer.insert((place.inode, name.to_vec()));
        Ok((place, name))
    }

    fn remove_existing(&mut self, place: &TreeDirectory, name: &[u8]) -> io::Result<()> {
        self.remove(place.directory.as_fd(), place.inode, name, KeepEntries::Nothing)
    }

    fn open_or_create(&mut self, names: &[&[u8]]) -> Result<TreeDirectory, ImageTreeError> {
        match self.open_directory(names, MissingDirectory::Create)? {
            Some(place) => Ok(place),
            None => Err(ImageTreeError::Io(io::ErrorKind::NotFound.into())),
        }
    }

    /// Opens the directory at a path, following links inside the tree.
    fn open_directory(
        &mut self,
        names: &[&[u8]],
        missing: MissingDirectory,
    ) -> Result<Option<TreeDirectory>, ImageTreeError> {
        let mut way: Vec<(Vec<u8>, OwnedFd)> = Vec::new();
        let mut todo: Vec<Vec<u8>> = names.iter().rev().map(|name| name.to_vec()).collect();
        let (mut links, mut steps) = (0, 0);
        while let Some(name) = todo.pop() {
            steps += 1;
            if steps > 4 * self.limits.depth {
                return Err(ImageTreeError::Refused(TOO_MANY_LINKS));
            }
            match name.as_slice() {
                b"" | b"." => continue,
                b".." => {
                    way.pop();
                    continue;
                }
                _ => (),
            }
            if way.len() == self.limits.depth {
                return Err(ImageTreeError::Refused("its path is too deep"));
            }
            let here = way.last().map_or(self.root.as_fd(), |(_, directory)| directory.as_fd());
            let next = match openat(here, os_str(&name), OPEN_DIRECTORY, Mode::empty()) {
                Ok(next) => next,
                Err(Errno::NOENT) if missing == MissingDirectory::Ignore => return Ok(None),
                Err(Errno::NOENT) => {
                    mkdirat(here, os_str(&name), Mode::RWXU)?;
                    let made = openat(here, os_str(&name), OPEN_DIRECTORY, Mode::empty())?;
                    chmod(made.try_clone()?, IMPLIED_DIR_MODE)?;
                    self.times.insert(fstat(&made)?.st_ino, TarTimestamp::default());
                    self.current_layer.insert((fstat(here)?.st_ino, name.clone()));
                    made
                }
                Err(Errno::NOTDIR | Errno::LOOP | Errno::MLINK) => {
                    let target = match readlinkat(here, os_str(&name), Vec::new()) {
                        Ok(target) => target.into_bytes(),
                        Err(Errno::INVAL) => {
                            return Err(ImageTreeError::Refused("a part of its path is not a directory"));
                        }
                        Err(errno) => return Err(errno.into()),
                    };
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(ImageTreeError::Refused(TOO_MANY_LINKS));
                    }
                    if target.starts_with(b"/") {
                        way.clear();
                    }
                    todo.extend(target.split(|byte| *byte == b'/').rev().map(<[u8]>::to_vec));
                    continue;
                }
                Err(errno) => return Err(errno.into()),
            };
            way.push((name, next));
        }
        let depth = way.len();
        let directory = match way.pop() {
            Some((_, directory)) => directory,
            None => self.root.try_clone()?,
        };
        let inode = fstat(&directory)?.st_ino;
        Ok(Some(TreeDirectory { directory, inode, depth }))
    }

    /// Opens the directory at a path; a link in the path is an error.
    fn open_no_follow(&self, names: &[&[u8]]) -> Result<OwnedFd, Errno> {
        let mut here = openat(&self.root, ".", OPEN_DIRECTORY, Mode::empty())?;
        for name in names {
            here = openat(&here, os_str(name), OPEN_DIRECTORY, Mode::empty())?;
        }
        Ok(here)
    }

    /// Removes an entry and everything below it. The tree's depth is limited, and so is this recursion.
    fn remove(&self, here: BorrowedFd<'_>, inode: u64, name: &[u8], keep: KeepEntries) -> io::Result<()> {
        let kept = keep == KeepEntries::CurrentLayer && self.current_layer.contains(&(inode, name.to_vec()));
        let directory = match openat(here, os_str(name), OPEN_DIRECTORY, Mode::empty()) {
            Ok(directory) => directory,
            Err(Errno::NOENT) => return Ok(()),
            Err(Errno::NOTDIR | Errno::LOOP | Errno::MLINK) if kept => return Ok(()),
            Err(Errno::NOTDIR | Errno::LOOP | Errno::MLINK) => {
                return Ok(unlinkat(here, os_str(name), AtFlags::empty())?);
            }
            Err(errno) => return Err(errno.into()),
        };
        let inner = fstat(&directory)?.st_ino;
        self.remove_children(directory.as_fd(), inner, keep)?;
        if kept {
            return Ok(());
        }
        match unlinkat(here, os_str(name), AtFlags::REMOVEDIR) {
            // The directory contains an entry that is kept, so it is kept too.
            Err(Errno::NOTEMPTY | Errno::EXIST) if keep == KeepEntries::CurrentLayer => Ok(()),
            removed => Ok(removed?),
        }
    }

    fn remove_children(&self, directory: BorrowedFd<'_>, inode: u64, keep: KeepEntries) -> io::Result<()> {
        let names = entry_names(directory)?;
        self.entries_scanned.set(self.entries_scanned.get().saturating_add(names.len() as u64));
        if self.entries_scanned.get() > self.limits.entries.saturating_mul(2) {
            return Err(LimitExceeded("it hides the same entries again and again".to_owned()).into());
        }
        for name in names {
            self.remove(directory, inode, &name, keep)?;
        }
        Ok(())
    }
}

/// Sets the permissions of a complete file, without set-user-id and similar bits, and its time.
pub(super) fn set_mode_and_time(file: &File, mode: u32, mtime: TarTimestamp) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(mode & 0o777))?;
    Ok(futimens(file, &timestamps(mtime))?)
}

/// Returns the names in a directory.
pub(super) fn entry_names(directory: BorrowedFd<'_>) -> io::Result<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(name.to_vec());
        }
    }
    Ok(names)
}

pub(super) fn os_str(name: &[u8]) -> &OsStr {
    OsStr::from_bytes(name)
}

fn split_name<'s, 'n>(names: &'s [&'n [u8]]) -> Result<(&'n [u8], &'s [&'n [u8]]), ImageTreeError> {
    match names.split_last() {
        Some((name, parents)) => Ok((name, parents)),
        None => Err(ImageTreeError::Refused("the root of the image can only be a directory")),
    }
}

fn chmod(directory: OwnedFd, mode: u32) -> io::Result<()> {
    File::from(directory).set_permissions(Permissions::from_mode(mode))
}

fn timestamps(time: TarTimestamp) -> Timestamps {
    let time = Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() };
    Timestamps { last_access: time, last_modification: time }
}
