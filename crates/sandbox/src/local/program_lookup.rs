//! Finds a program on a `PATH` before it is started.
//!
//! A program named by its full path can be started without copying this process first, which a command with a changed
//! `PATH` would otherwise require. A program that is not found here is left to the system, which reports why.

use std::ffi::OsStr;
use std::path::PathBuf;

use rustix::fs::{Access, access};

/// Returns the program a shell with this `PATH` would start, if every folder before it is absolute too: a relative one
/// depends on the working directory.
pub(super) fn find(name: &str, path: &OsStr) -> Option<PathBuf> {
    if name.is_empty() || name.contains('/') {
        return None;
    }
    for folder in std::env::split_paths(path) {
        if !folder.is_absolute() {
            return None;
        }
        let candidate = folder.join(name);
        if candidate.is_file() && access(&candidate, Access::EXEC_OK).is_ok() {
            return Some(candidate);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn finds_the_program_that_a_shell_would_start() {
        let folder = tempfile::tempdir().unwrap();
        let (one, two) = (folder.path().join("one"), folder.path().join("two"));
        for (folder, name, mode) in
            [(&one, "tool", 0o644), (&two, "tool", 0o755), (&one, "both", 0o755), (&two, "both", 0o755)]
        {
            fs::create_dir_all(folder).unwrap();
            fs::write(folder.join(name), "").unwrap();
            fs::set_permissions(folder.join(name), Permissions::from_mode(mode)).unwrap();
        }
        fs::create_dir(one.join("folder")).unwrap();
        let both = std::env::join_paths([&one, &two]).unwrap();
        let near = std::env::join_paths([std::path::Path::new("bin"), &two]).unwrap();
        for (name, path, want) in [
            ("tool", &both, Some(two.join("tool"))),
            ("both", &both, Some(one.join("both"))),
            ("folder", &both, None),
            ("missing", &both, None),
            ("two/tool", &both, None),
            ("", &both, None),
            ("tool", &near, None),
        ] {
            assert_eq!(find(name, path), want, "{name:?} in {}", path.display());
        }
    }
}
