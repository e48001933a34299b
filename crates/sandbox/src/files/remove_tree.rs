//! Removes a directory tree that an agent created, whatever is in it: locked directories, any depth, links to anywhere.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Dir, Mode, OFlags, fchmod, fstat, open, openat, renameat, unlinkat};
use rustix::io::Errno;

use crate::{Error, random_name};

/// The most directories open at a time; deeper ones are first moved to the top.
const MAX_DEPTH: usize = 32;
/// How often a directory is read again before we give up on one that fills up as fast as we empty it. A deep tree that
/// is moved to the top in parts needs many passes, and each of them is progress.
const MAX_PASSES: usize = 100_000;

const OPEN_DIR_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Removes a host path and everything under it; a missing path is not an error. Links are removed, never followed, and
/// a tree with another filesystem mounted inside is refused.
pub fn remove_tree(path: &Path) -> Result<(), Error> {
    remove(path).map_err(|source| Error::Host { doing: "remove", path: path.to_owned(), source })
}

fn remove(path: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "the path has no last name"));
    };
    let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    let parent = match open(parent, OPEN_DIR_FLAGS.difference(OFlags::NOFOLLOW), Mode::empty()) {
        Ok(parent) => parent,
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(errno.into()),
    };
    let name = CString::new(name.as_encoded_bytes())?;
    let Some(top) = unlink_or_open(&parent, &name)? else { return Ok(()) };
    empty_directory(top)?;
    match unlinkat(&parent, &name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

struct OpenDirectory {
    directory: Dir,
    name: CString,
    removed: usize,
    passes: usize,
}

impl OpenDirectory {
    fn new(fd: OwnedFd, name: &CStr) -> io::Result<Self> {
        Ok(Self { directory: Dir::new(fd)?, name: name.to_owned(), removed: 0, passes: 0 })
    }
}

/// Empties a directory with a bounded list of open levels instead of recursion, so depth costs neither stack nor
/// descriptors.
fn empty_directory(top: OwnedFd) -> io::Result<()> {
    let device = fstat(&top)?.st_dev;
    let summit = top.try_clone()?;
    let mut levels = vec![OpenDirectory::new(top, c".")?];
    loop {
        let depth = levels.len();
        let Some(level) = levels.last_mut() else { return Ok(()) };
        if let Some(entry) = level.directory.read() {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            level.removed += 1;
            let Some(inner) = unlink_or_open(level.directory.fd()?, name)? else { continue };
            if fstat(&inner)?.st_dev != device {
                return Err(io::Error::new(io::ErrorKind::CrossesDevices, "another filesystem is mounted inside"));
            }
            if depth < MAX_DEPTH {
                levels.push(OpenDirectory::new(inner, name)?);
            } else {
                renameat(level.directory.fd()?, name, &summit, format!(".deep-{}", random_name::random()))?;
            }
            continue;
        }
        // Removing while reading may skip entries, and deep ones are moved to the top: read until nothing is found.
        if level.removed > 0 && level.passes < MAX_PASSES {
            level.removed = 0;
            level.passes += 1;
            level.directory.rewind();
            continue;
        }
        let name = level.name.clone();
        levels.pop();
        if let Some(above) = levels.last() {
            match unlinkat(above.directory.fd()?, &name, AtFlags::REMOVEDIR) {
                Ok(()) | Err(Errno::NOENT) => (),
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

/// Removes the entry unless it is a directory; a directory is returned, open and unlocked.
fn unlink_or_open(here: impl AsFd, name: &CStr) -> io::Result<Option<OwnedFd>> {
    let here = here.as_fd();
    let refused = match unlinkat(here, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(None),
        // Linux returns the first for a directory, other systems the second.
        Err(errno @ (Errno::ISDIR | Errno::PERM)) => errno,
        Err(errno) => return Err(errno.into()),
    };
    let opened = match openat(here, name, OPEN_DIR_FLAGS, Mode::empty()) {
        Err(Errno::ACCESS) => {
            unlock(here, name)?;
            openat(here, name, OPEN_DIR_FLAGS, Mode::empty())
        }
        opened => opened,
    };
    match opened {
        Ok(inner) => {
            // A directory of another user cannot be unlocked, but its permissions may already suffice.
            let _ = fchmod(&inner, Mode::RWXU);
            Ok(Some(inner))
        }
        Err(Errno::NOENT) => Ok(None),
        Err(Errno::NOTDIR | Errno::LOOP) => Err(refused.into()),
        Err(errno) => Err(errno.into()),
    }
}

/// Gives the user all permissions on a directory that cannot even be opened, without following a link put in its place.
#[cfg(target_os = "linux")]
fn unlock(here: impl AsFd, name: &CStr) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    // `chmod` by name follows links here and `fchmod` needs more than a locked directory allows; the descriptor's entry
    // under `/proc` leads to exactly the directory that is open.
    let held =
        openat(here, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    Ok(rustix::fs::chmod(format!("/proc/self/fd/{}", held.as_raw_fd()), Mode::RWXU)?)
}

#[cfg(not(target_os = "linux"))]
fn unlock(here: impl AsFd, name: &CStr) -> io::Result<()> {
    Ok(rustix::fs::chmodat(here, name, Mode::RWXU, AtFlags::SYMLINK_NOFOLLOW)?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use rustix::fs::mkdirat;

    use super::*;

    fn left(folder: &Path) -> Vec<String> {
        fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn trees_deeper_than_the_path_limit_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let mut here = open(folder.path(), OPEN_DIR_FLAGS, Mode::empty()).unwrap();
        for _ in 0..2500 {
            mkdirat(&here, c"deep", Mode::RWXU).unwrap();
            here = openat(&here, c"deep", OPEN_DIR_FLAGS, Mode::empty()).unwrap();
        }
        remove_tree(&folder.path().join("deep")).unwrap();
        assert_eq!(left(folder.path()), <[&str; 0]>::default());
    }

    #[test]
    fn many_entries_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let tree = folder.path().join("tree");
        fs::create_dir(&tree).unwrap();
        for n in 0..3000 {
            fs::write(tree.join(n.to_string()), "").unwrap();
        }
        remove_tree(&tree).unwrap();
        assert_eq!(left(folder.path()), <[&str; 0]>::default());
    }

    #[test]
    fn locked_trees_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let tree = folder.path().join("tree");
        for (name, mode) in [("none", 0o000), ("read", 0o400), ("no-write", 0o500), ("no-search", 0o600)] {
            fs::create_dir_all(tree.join(name).join("inner")).unwrap();
            fs::write(tree.join(name).join("inner/file"), "x").unwrap();
            fs::set_permissions(tree.join(name).join("inner"), fs::Permissions::from_mode(mode)).unwrap();
            fs::set_permissions(tree.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        fs::set_permissions(&tree, fs::Permissions::from_mode(0o000)).unwrap();
        remove_tree(&tree).unwrap();
        assert_eq!(left(folder.path()), <[&str; 0]>::default());
    }

    #[test]
    fn links_are_removed_and_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let outside = folder.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("file"), "keep").unwrap();
        fs::set_permissions(&outside, fs::Permissions::from_mode(0o755)).unwrap();
        let tree = folder.path().join("tree");
        fs::create_dir(&tree).unwrap();
        symlink(&outside, tree.join("link")).unwrap();
        symlink("nowhere", tree.join("dangling")).unwrap();
        remove_tree(&tree).unwrap();
        symlink(&outside, &tree).unwrap();
        remove_tree(&tree).unwrap();
        assert_eq!(left(folder.path()), ["outside"]);
        assert_eq!(fs::read_to_string(outside.join("file")).unwrap(), "keep");
        assert_eq!(fs::metadata(&outside).unwrap().permissions().mode() & 0o777, 0o755);
    }

    #[test]
    fn missing_paths_are_not_an_error() {
        let folder = tempfile::tempdir().unwrap();
        remove_tree(&folder.path().join("nothing")).unwrap();
        remove_tree(&folder.path().join("no/parent")).unwrap();
        fs::write(folder.path().join("file"), "").unwrap();
        remove_tree(&folder.path().join("file")).unwrap();
        assert_eq!(left(folder.path()), <[&str; 0]>::default());
        // Represents every path without a last name. `/` is another, which a test must not try.
        assert!(remove_tree(Path::new("")).is_err());
    }
}
