//! Splits a path into the plain names it consists of. Does not check whether they exist.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use crate::Error;

/// Returns the names from the root to the target; none for the root itself.
pub(super) fn plain_components(path: &Path) -> Result<Vec<&OsStr>, Error> {
    if path.as_os_str().is_empty() {
        return Err(refused(path, "the path is empty"));
    }
    if path.as_os_str().as_bytes().contains(&0) {
        return Err(refused(path, "the path contains a NUL byte"));
    }
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => names.push(name),
            Component::CurDir => (),
            Component::ParentDir => return Err(refused(path, "the path contains `..`")),
            Component::RootDir | Component::Prefix(_) => return Err(refused(path, "the path is absolute")),
        }
    }
    Ok(names)
}

/// Returns the names of the parent directories, and the last name.
pub(super) fn split_file_path(path: &Path) -> Result<(Vec<&OsStr>, &OsStr), Error> {
    let mut names = plain_components(path)?;
    // `a/` and `a/.` mean a directory; the component iterator hides the difference.
    let bytes = path.as_os_str().as_bytes();
    if bytes.ends_with(b"/") || bytes.ends_with(b"/.") {
        return Err(refused(path, "the path names a directory, not a file"));
    }
    match names.pop() {
        Some(name) => Ok((names, name)),
        None => Err(refused(path, "the path names a directory, not a file")),
    }
}

pub(super) fn refused(path: &Path, why: &'static str) -> Error {
    Error::Refused { path: path.to_owned(), why }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(path: &str, want: Result<(&[&str], &str), &str>) {
        let got = match split_file_path(Path::new(path)) {
            Ok((parents, name)) => Ok((parents, name)),
            Err(Error::Refused { why, .. }) => Err(why),
            Err(other) => panic!("{other:?}"),
        };
        let want = want.map(|(parents, name)| (parents.iter().map(OsStr::new).collect(), OsStr::new(name)));
        assert_eq!(got, want, "{path:?}");
    }

    #[test]
    fn paths() {
        check("a", Ok((&[], "a")));
        check("./a//b/./c", Ok((&["a", "b"], "c")));
        check("a b\n/ü", Ok((&["a b\n"], "ü")));
        check("...", Ok((&[], "...")));
        check("", Err("the path is empty"));
        check(".", Err("the path names a directory, not a file"));
        check("a/", Err("the path names a directory, not a file"));
        check("a/.", Err("the path names a directory, not a file"));
        check("..", Err("the path contains `..`"));
        check("a/../b", Err("the path contains `..`"));
        check("/etc/passwd", Err("the path is absolute"));
        check("//a", Err("the path is absolute"));
        check("a\0b", Err("the path contains a NUL byte"));
    }
}
