//! Takes stamps of files, which show whether anything wrote to a file in between: no process can set the time of a
//! file's last change.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, statat};

use super::path::split_file_path;
use super::root_dir::{RootDir, file_type};
use crate::FileStamp;

/// Returns the stamp of each file; `None` where there is no regular file, or a link on the way to it.
pub fn stamps(root: &RootDir, paths: &[PathBuf]) -> Vec<Option<FileStamp>> {
    // Files of one folder follow each other, and the way to it is walked once.
    let mut last: Option<(&Path, Option<OwnedFd>)> = None;
    let mut found = Vec::with_capacity(paths.len());
    for path in paths {
        let folder = path.parent().unwrap_or(Path::new(""));
        if last.as_ref().is_none_or(|(known, _)| *known != folder) {
            last = Some((folder, root.open_folder(folder)));
        }
        let here = last.as_ref().and_then(|(_, here)| here.as_ref());
        found.push(here.and_then(|here| stamp(here, path)));
    }
    found
}

#[expect(clippy::useless_conversion, reason = "the type of `st_mode` differs between operating systems")]
fn stamp(folder: &OwnedFd, path: &Path) -> Option<FileStamp> {
    let (_, name) = split_file_path(path).ok()?;
    let stat = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
    (file_type(&stat) == FileType::RegularFile).then(|| FileStamp {
        inode: stat.st_ino,
        mode: stat.st_mode.into(),
        size: u64::try_from(stat.st_size).unwrap_or(0),
        modified: (stat.st_mtime, i64::try_from(stat.st_mtime_nsec).unwrap_or(0)),
        changed: (stat.st_ctime, i64::try_from(stat.st_ctime_nsec).unwrap_or(0)),
    })
}

#[cfg(test)]
mod tests {
    use std::fs::{self, FileTimes};
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    /// Returns whether the stamp of `file` shows that `change` was made.
    fn notices(change: impl FnOnce(&Path)) -> bool {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("sub/file");
        fs::create_dir(dir.path().join("sub")).unwrap();
        fs::write(&file, "text").unwrap();
        let root = RootDir::open("t", dir.path()).unwrap();
        let paths = [PathBuf::from("sub/file")];
        let before = stamps(&root, &paths);
        assert!(before[0].is_some() && before == stamps(&root, &paths));
        std::thread::sleep(std::time::Duration::from_millis(20));
        change(&file);
        before != stamps(&root, &paths)
    }

    #[test]
    fn every_change_is_noticed() {
        assert!(!notices(|file| drop(fs::read(file).unwrap())));
        assert!(notices(|file| fs::write(file, "TEXT").unwrap()));
        assert!(notices(|file| fs::remove_file(file).unwrap()));
        assert!(notices(|file| fs::set_permissions(file, fs::Permissions::from_mode(0o700)).unwrap()));
        assert!(notices(|file| {
            fs::rename(file, file.with_extension("old")).unwrap();
            symlink("file.old", file).unwrap();
        }));
        // The content and its time are put back.
        assert!(notices(|file| {
            let time = fs::metadata(file).unwrap().modified().unwrap();
            fs::write(file, "TEXT").unwrap();
            fs::write(file, "text").unwrap();
            fs::File::options().write(true).open(file).unwrap().set_times(FileTimes::new().set_modified(time)).unwrap();
        }));
        // Another folder in its place.
        assert!(notices(|file| {
            let (sub, away) = (file.parent().unwrap(), file.parent().unwrap().with_extension("away"));
            fs::rename(sub, &away).unwrap();
            symlink(&away, sub).unwrap();
        }));
    }
}
