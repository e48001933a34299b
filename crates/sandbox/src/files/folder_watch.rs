//! Notices that a folder is moved away, even if it is moved back: the stamps of the files in it do not show that.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::root_dir::RootDir;
use crate::Error;

/// How many folders are watched.
#[cfg(target_os = "linux")]
const MAX_FOLDERS: usize = 5_000;

/// What happened to watched folders.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct FolderChanges {
    /// Folders that were moved or removed, and those of which nothing is known.
    pub moved: BTreeSet<PathBuf>,
    /// What was made in them or moved into them, whether it is still there or not.
    pub created: BTreeSet<PathBuf>,
}

/// Folders that are watched until it is dropped.
#[derive(Debug)]
pub struct FolderWatch {
    #[cfg(target_os = "linux")]
    events: std::os::fd::OwnedFd,
    #[cfg(target_os = "linux")]
    folders: std::collections::HashMap<i32, PathBuf>,
    /// Folders that could not be watched: nothing is known about them.
    unknown: BTreeSet<PathBuf>,
}

/// Starts to watch folders below a directory; `None` on a system that cannot. A folder that does not exist is left out.
#[cfg(target_os = "linux")]
pub fn watch_folders(root: &RootDir, folders: &BTreeSet<PathBuf>) -> Result<Option<FolderWatch>, Error> {
    use std::os::fd::AsRawFd as _;

    use rustix::fs::inotify::{CreateFlags, WatchFlags, add_watch, init};
    use rustix::io::Errno;

    let error = |errno: Errno| root.file_error("watch", std::path::Path::new("."), errno);
    let events = match init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK) {
        Err(Errno::NOSYS) => return Ok(None),
        events => events.map_err(error)?,
    };
    let mut watch = FolderWatch { events, folders: std::collections::HashMap::new(), unknown: BTreeSet::new() };
    for folder in folders.iter().take(MAX_FOLDERS) {
        let Some(here) = root.open_folder(folder) else { continue };
        let path = format!("/proc/self/fd/{}", here.as_raw_fd());
        let flags = WatchFlags::MOVE_SELF | WatchFlags::DELETE_SELF | WatchFlags::CREATE | WatchFlags::MOVED_TO;
        let flags = flags | WatchFlags::ONLYDIR;
        match add_watch(&watch.events, path, flags) {
            Ok(number) => drop(watch.folders.insert(number, folder.clone())),
            Err(Errno::ACCESS) => drop(watch.unknown.insert(folder.clone())),
            Err(errno) => return Err(error(errno)),
        }
    }
    Ok(Some(watch))
}

/// Starts to watch folders below a directory; `None` on a system that cannot.
#[cfg(not(target_os = "linux"))]
#[expect(clippy::unnecessary_wraps, reason = "the same signature on every system")]
pub fn watch_folders(_root: &RootDir, _folders: &BTreeSet<PathBuf>) -> Result<Option<FolderWatch>, Error> {
    Ok(None)
}

impl FolderWatch {
    /// Returns what happened since the watch started.
    #[cfg(target_os = "linux")]
    pub fn changes(self) -> FolderChanges {
        use std::os::unix::ffi::OsStrExt as _;

        use rustix::fs::inotify::ReadFlags;

        let Self { events, folders, unknown: moved } = self;
        let mut changes = FolderChanges { moved, created: BTreeSet::new() };
        let mut buffer = [std::mem::MaybeUninit::uninit(); 16 << 10];
        let mut reader = rustix::fs::inotify::Reader::new(&events, &mut buffer);
        // The system keeps a bounded number of events.
        while let Ok(event) = reader.next() {
            let Some(folder) = folders.get(&event.wd()) else {
                // More happened than the system keeps.
                changes.moved.extend(folders.values().cloned());
                continue;
            };
            if event.events().intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
                let name = event.file_name().map(|name| std::ffi::OsStr::from_bytes(name.to_bytes()));
                changes.created.extend(name.map(|name| folder.join(name)));
            } else if event.events().intersects(ReadFlags::MOVE_SELF | ReadFlags::DELETE_SELF) {
                changes.moved.insert(folder.clone());
            }
        }
        changes
    }

    /// Returns the folders of which nothing is known.
    #[cfg(not(target_os = "linux"))]
    pub fn changes(self) -> FolderChanges {
        FolderChanges { moved: self.unknown, created: BTreeSet::new() }
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    #[track_caller]
    fn check(change: impl FnOnce(&Path), moved: &[&str], created: &[&str]) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("a/tests/deep")).unwrap();
        fs::write(dir.path().join("a/tests/deep/file"), "text").unwrap();
        let root = RootDir::open("t", dir.path()).unwrap();
        let folders = ["a", "a/tests", "a/tests/deep", "missing"].map(PathBuf::from).into();
        let watch = watch_folders(&root, &folders).unwrap().expect("Linux can");
        change(&dir.path().join("a"));
        let paths = |paths: &[&str]| paths.iter().map(PathBuf::from).collect();
        assert_eq!(watch.changes(), FolderChanges { moved: paths(moved), created: paths(created) });
    }

    #[test]
    fn moved_folders_are_noticed() {
        check(|_| (), &[], &[]);
        check(
            |a| {
                fs::write(a.join("tests/deep/file"), "other").unwrap();
                fs::write(a.join("tests/new"), "new").unwrap();
                fs::remove_file(a.join("tests/new")).unwrap();
                fs::create_dir(a.join("tests/cache")).unwrap();
            },
            &[],
            &["a/tests/cache", "a/tests/new"],
        );
        check(
            |a| {
                fs::rename(a.join("tests"), a.join("away")).unwrap();
                fs::create_dir(a.join("tests")).unwrap();
                fs::remove_dir(a.join("tests")).unwrap();
                fs::rename(a.join("away"), a.join("tests")).unwrap();
            },
            &["a/tests"],
            &["a/away", "a/tests"],
        );
        check(|a| fs::remove_dir_all(a.join("tests/deep")).unwrap(), &["a/tests/deep"], &[]);
        // More than the system keeps: nothing is known any more.
        check(
            |a| {
                for n in 0..20_000 {
                    let (from, to) = if n % 2 == 0 { ("tests", "away") } else { ("away", "tests") };
                    fs::rename(a.join(from), a.join(to)).unwrap();
                }
            },
            &["a", "a/tests", "a/tests/deep"],
            &["a/away", "a/tests"],
        );
    }
}
