//! The tree an image becomes, touched only through open directories.
//!
//! Every step is one name below a directory that is held open, and the kernel is never asked to follow a link. A link
//! on the way to an entry (`lib` → `usr/lib`, in many images) is followed by us, inside the tree: its target starts at
//! the tree's root when absolute, and `..` goes back along the directories we came through, never above the root. The
//! way to the target of a hard link has no links at all. Nothing is written in place: what an entry replaces is removed
//! first, so a name shared with a lower layer changes nothing there.

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
/// Most links on the way to one entry, like the kernel's own limit.
const MAX_LINKS: usize = 40;
const TOO_MANY_LINKS: &str = "its path goes through too many links";
/// Permissions of a directory that no entry describes.
const IMPLIED_DIR_MODE: u32 = 0o755;

/// Why an entry did not get its place.
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

/// What stays when something is removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum KeepEntries {
    Nothing,
    /// What the layer that is being unpacked made itself.
    CurrentLayer,
}

#[derive(Debug)]
pub(super) struct ImageTree<'a> {
    root: OwnedFd,
    limits: &'a ImageLimits,
    /// When directories were changed; set at the end, because every new entry changes it again. By inode: whoever gets
    /// that of a removed directory is noted here anew.
    times: HashMap<u64, TarTimestamp>,
    /// What the current layer made, as directory and name.
    current_layer: HashSet<(u64, Vec<u8>)>,
    /// Entries looked at to hide things: a layer can ask for the same directory over and over.
    entries_scanned: Cell<u64>,
}

/// An open directory of the tree.
struct TreeDirectory {
    directory: OwnedFd,
    inode: u64,
    /// How many directories it is below the root.
    depth: usize,
}

impl<'a> ImageTree<'a> {
    /// Opens an empty directory of the host to be filled.
    pub(super) fn open(directory: &Path, limits: &'a ImageLimits) -> io::Result<Self> {
        let root = open(directory, OPEN_DIRECTORY, Mode::empty())?;
        let times = HashMap::from([(fstat(&root)?.st_ino, TarTimestamp::default())]);
        Ok(Self { root, limits, times, current_layer: HashSet::new(), entries_scanned: Cell::new(0) })
    }

    /// Forgets what the layer before made: to the next one it is all the same.
    pub(super) fn next_layer(&mut self) {
        self.current_layer.clear();
    }

    /// Makes a directory, or gives an existing one these permissions. The user may always enter and empty it.
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

    /// Makes an empty file; its permissions and time are set by [`seal`] once it is filled.
    pub(super) fn file(&mut self, names: &[&[u8]]) -> Result<File, ImageTreeError> {
        let (place, name) = self.prepare_entry(names)?;
        Ok(File::from(openat(&place.directory, os_str(name), OPEN_NEW_FILE, Mode::RUSR | Mode::WUSR)?))
    }

    /// Makes a symbolic link. Where it leads is data: it is followed only with this tree as the root.
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

    /// Makes another name for a file or symbolic link that is in the tree already.
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
                // The target lay below what this entry replaced.
                Err(Errno::NOENT) => return Err(NOTHING),
                Err(errno) => return Err(errno.into()),
            }
        }
        self.current_layer.insert((place.inode, name.to_vec()));
        Ok(())
    }

    /// Removes what lower layers put at a name, whatever it is.
    pub(super) fn hide(&mut self, names: &[&[u8]]) -> Result<(), ImageTreeError> {
        let (name, parents) = split_name(names)?;
        let Some(place) = self.open_directory(parents, MissingDirectory::Ignore)? else { return Ok(()) };
        Ok(self.remove(place.directory.as_fd(), place.inode, name, KeepEntries::CurrentLayer)?)
    }

    /// Removes what lower layers put into a directory, which stays.
    pub(super) fn hide_children(&mut self, names: &[&[u8]]) -> Result<(), ImageTreeError> {
        let Some(place) = self.open_directory(names, MissingDirectory::Ignore)? else { return Ok(()) };
        Ok(self.remove_children(place.directory.as_fd(), place.inode, KeepEntries::CurrentLayer)?)
    }

    /// Gives every directory the time its entry had.
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

    /// Makes room for an entry, and returns where and under which name.
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

    /// Opens the directory the names lead to, following links inside the tree.
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

    /// Opens the directory the names lead to; a link on the way is an error.
    fn open_no_follow(&self, names: &[&[u8]]) -> Result<OwnedFd, Errno> {
        let mut here = openat(&self.root, ".", OPEN_DIRECTORY, Mode::empty())?;
        for name in names {
            here = openat(&here, os_str(name), OPEN_DIRECTORY, Mode::empty())?;
        }
        Ok(here)
    }

    /// Removes an entry and everything under it. The depth of the tree is limited, and with it this recursion.
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
            // Something in it is kept, and so is the way there.
            Err(Errno::NOTEMPTY | Errno::EXIST) if keep == KeepEntries::CurrentLayer => Ok(()),
            removed => Ok(removed?),
        }
    }

    fn remove_children(&self, directory: BorrowedFd<'_>, inode: u64, keep: KeepEntries) -> io::Result<()> {
        let names = entry_names(directory)?;
        self.entries_scanned.set(self.entries_scanned.get().saturating_add(names.len() as u64));
        if self.entries_scanned.get() > self.limits.entries.saturating_mul(2) {
            return Err(LimitExceeded("it hides the same things over and over".to_owned()).into());
        }
        for name in names {
            self.remove(directory, inode, &name, keep)?;
        }
        Ok(())
    }
}

/// Gives a file that is filled its permissions, without set-user-id and its like, and its time.
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
