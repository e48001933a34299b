//! Reads the host's file system, in small and bounded steps, without deciding anything. What cannot be read counts as
//! missing.

use std::cmp::Ordering;
use std::ffi::OsString;
use std::fs;
use std::io::Read;
use std::os::unix::fs::FileTypeExt;
use std::path::{Component, Path, PathBuf};

/// The most bytes read from a settings file.
const MAX_TEXT: u64 = 64 * 1024;
/// The most names read from one directory.
pub(super) const MAX_NAMES: usize = 20_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HostFileKind {
    File,
    Directory,
    Link,
    /// Sockets, pipes and devices: a way to reach the host, whatever their name.
    Special,
}

/// Returns the real directory a path leads to.
pub(super) fn real_dir(path: &Path) -> Option<PathBuf> {
    let real = fs::canonicalize(path).ok()?;
    real.is_dir().then_some(real)
}

pub(super) fn real(path: &Path) -> Option<PathBuf> {
    fs::canonicalize(path).ok()
}

/// Returns an absolute path without `.` and doubled slashes; `None` for one that is relative or contains `..`.
pub(super) fn clean(path: &Path) -> Option<PathBuf> {
    let plain = path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    (path.is_absolute() && plain).then(|| path.components().collect())
}

/// Returns the names in a directory, sorted, and whether the list is complete.
pub(super) fn names(dir: &Path) -> (Vec<(OsString, HostFileKind)>, bool) {
    let Ok(entries) = fs::read_dir(dir) else { return (Vec::new(), true) };
    let mut names = Vec::new();
    let mut all = true;
    for entry in entries {
        let Ok(entry) = entry else {
            all = false;
            continue;
        };
        if names.len() == MAX_NAMES {
            all = false;
            break;
        }
        let Ok(kind) = entry.file_type() else { continue };
        let kind = if kind.is_symlink() {
            HostFileKind::Link
        } else if kind.is_dir() {
            HostFileKind::Directory
        } else if kind.is_socket() || kind.is_fifo() || kind.is_block_device() || kind.is_char_device() {
            HostFileKind::Special
        } else {
            HostFileKind::File
        };
        names.push((entry.file_name(), kind));
    }
    names.sort_by(|a, b| a.0.cmp(&b.0));
    (names, all)
}

/// Returns the names of the directories in a directory (and of links to directories) that are valid UTF-8.
pub(super) fn dirs(dir: &Path) -> Vec<String> {
    let (names, _) = names(dir);
    let texts = names.into_iter().filter_map(|(name, _)| name.into_string().ok());
    texts.filter(|name| !name.starts_with('.') && dir.join(name).is_dir()).collect()
}

/// Returns the text of a small regular file.
pub(super) fn text(path: &Path) -> Option<String> {
    // Opening a pipe would block.
    if !fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    fs::File::open(path).ok()?.take(MAX_TEXT).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Returns whether a word can be a single name in a path.
pub(super) fn is_name(word: &str) -> bool {
    !word.is_empty() && word != "." && word != ".." && !word.contains(['/', '\0'])
}

/// Returns the installed version that `meant` names: exactly that one, or the newest that begins with it (`3.11` for
/// `3.11.7`).
pub(super) fn matching_version(dir: &Path, meant: &str) -> Option<String> {
    if is_name(meant) && dir.join(meant).is_dir() {
        return Some(meant.to_owned());
    }
    let of_line = |name: &&String| name.strip_prefix(meant).is_some_and(|rest| rest.starts_with(['.', '-']));
    dirs(dir).iter().filter(of_line).max_by(|a, b| by_version(a, b)).cloned()
}

/// Returns the newest version installed in a directory.
pub(super) fn newest_version(dir: &Path) -> Option<String> {
    dirs(dir).into_iter().max_by(|a, b| by_version(a, b))
}

/// Compares the numbers in two names, then the names: `v9` is older than `v10`.
fn by_version(a: &str, b: &str) -> Ordering {
    let numbers = |name: &str| -> Vec<u64> {
        name.split(|c: char| !c.is_ascii_digit()).filter_map(|digits| digits.parse().ok()).collect()
    };
    numbers(a).cmp(&numbers(b)).then_with(|| a.cmp(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_cleaned_without_file_system_access() {
        let check = |path: &str, want: Option<&str>| assert_eq!(clean(Path::new(path)), want.map(PathBuf::from));
        check("/a//b/./c/", Some("/a/b/c"));
        check("/", Some("/"));
        check("/a/../b", None);
        check("a", None);
        check("", None);
    }

    #[test]
    fn versions_are_compared_by_their_numbers() {
        let home = tempfile::tempdir().expect("a directory");
        for name in ["3.9.18", "3.11.7", "3.11.10", "3.110.1", ".cache"] {
            fs::create_dir(home.path().join(name)).expect("made");
        }
        let check = |meant: &str, want: Option<&str>| {
            assert_eq!(matching_version(home.path(), meant).as_deref(), want, "{meant}");
        };
        check("3.11.7", Some("3.11.7"));
        check("3.11", Some("3.11.10"));
        check("3", Some("3.110.1"));
        check("2", None);
        check("..", None);
        check("", None);
        assert_eq!(newest_version(home.path()).as_deref(), Some("3.110.1"));
    }
}
