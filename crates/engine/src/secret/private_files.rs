//! Reads and writes files and folders that only their owner may read.

use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use zeroize::Zeroizing;

use super::error::{Error, file};

/// Creates a private folder, or checks that an existing one is private.
pub(super) fn ensure_folder(path: &Path) -> Result<(), Error> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(file("make the folder", parent))?;
    }
    match fs::DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => check_folder(path),
        Err(error) => Err(file("make the folder", path)(error)),
    }
}

/// Checks that a path is a folder, owned by the user, and closed to others.
pub(super) fn check_folder(path: &Path) -> Result<(), Error> {
    let meta = match fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(file("look at", path)(error)),
    };
    if !meta.is_dir() {
        return Err(not_private(
            path,
            "it is a link or a file, and a folder is needed",
            format!("rm {}", shell_quoted(path)),
        ));
    }
    check_owner_and_mode(path, meta.uid(), meta.mode(), 700)
}

/// Reads a whole file of at most `cap` bytes; `None` if there is none. A link is not followed.
pub(super) fn read(path: &Path, cap: usize) -> Result<Option<Zeroizing<Vec<u8>>>, Error> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let opened = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(opened) => File::from(opened),
        Err(rustix::io::Errno::NOENT) => return Ok(None),
        Err(rustix::io::Errno::LOOP) => {
            return Err(not_private(path, "it is a link", format!("rm {}", shell_quoted(path))));
        }
        Err(error) => return Err(file("open", path)(error.into())),
    };
    let meta = opened.metadata().map_err(file("look at", path))?;
    if !meta.is_file() {
        return Err(not_private(path, "it is not a plain file", format!("rm -r {}", shell_quoted(path))));
    }
    check_owner_and_mode(path, meta.uid(), meta.mode(), 600)?;
    let mut bytes = Zeroizing::new(Vec::with_capacity(cap.min(8 << 10)));
    opened.take(cap as u64 + 1).read_to_end(&mut bytes).map_err(file("read", path))?;
    if bytes.len() > cap {
        let too_long = io::Error::other("it is too long");
        return Err(file("read", path)(too_long));
    }
    Ok(Some(bytes))
}

/// Writes a file atomically, private to its owner from its first byte on.
pub(super) fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    let dir = path.parent().unwrap_or(Path::new("."));
    // `NamedTempFile` creates files with mode 0600.
    let mut new = tempfile::NamedTempFile::new_in(dir).map_err(file("write to", dir))?;
    new.write_all(bytes).map_err(file("write", path))?;
    new.as_file().sync_data().map_err(file("flush", path))?;
    new.persist(path).map_err(|error| file("replace", path)(error.error))?;
    Ok(())
}

/// Removes a file; returns whether there was one.
pub(super) fn remove(path: &Path) -> Result<bool, Error> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(file("remove", path)(error)),
    }
}

fn check_owner_and_mode(path: &Path, uid: u32, mode: u32, wanted: u32) -> Result<(), Error> {
    if uid != rustix::process::geteuid().as_raw() {
        return Err(not_private(
            path,
            "it belongs to another user",
            format!("chown \"$(id -u)\" {}", shell_quoted(path)),
        ));
    }
    if mode & 0o077 != 0 {
        return Err(not_private(
            path,
            "others can read or change it",
            format!("chmod {wanted} {}", shell_quoted(path)),
        ));
    }
    Ok(())
}

fn not_private(path: &Path, why: &'static str, remedy: String) -> Error {
    Error::NotPrivate { path: path.to_owned(), why, remedy }
}

/// Quotes a path as one shell word.
fn shell_quoted(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_alphanumeric() || "/._-+,@%".contains(c);
    if text.chars().all(plain) { text } else { format!("'{}'", text.replace('\'', "'\\''")) }
}
