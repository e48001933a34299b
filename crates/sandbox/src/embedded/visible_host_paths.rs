//! Lists what a cage sees of the host's system: its programs and public settings, named one by one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags, fstat, openat2};

use super::etc_copy;
use super::plan::{CageBind, MountSource, TextFile};

/// The directories with the system's programs, and the links that lead to them.
const SYSTEM_DIRS: [&str; 7] = ["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/usr"];

const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// The host's system as it is bound into every cage.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HostSystem {
    pub(super) binds: Vec<CageBind>,
    pub(super) links: Vec<(String, String)>,
}

/// Reads the host's system directories. What is missing on the host is missing inside. Its settings are copied into
/// `dir`.
pub(super) fn read_host_system(dir: &Path, hostname: &str, home: &str) -> io::Result<HostSystem> {
    let (mut binds, mut links) = (Vec::new(), vec![("/var/tmp".to_owned(), "/tmp".to_owned())]);
    for path in SYSTEM_DIRS {
        match fs::symlink_metadata(path) {
            Ok(found) if found.is_symlink() => {
                links.push((path.to_owned(), fs::read_link(path)?.to_string_lossy().into_owned()));
            }
            Ok(found) if found.is_dir() => binds.push(bind(Path::new(path), path)?),
            _ => (),
        }
    }
    binds.push(bind(&etc_copy::ensure_copy(dir, Path::new("/etc"), hostname, home)?, "/etc")?);
    Ok(HostSystem { binds, links })
}

/// Returns the devices of every cage. They are not part of the base, because a cage with an image has them too.
pub(super) fn devices() -> io::Result<Vec<CageBind>> {
    DEVICES
        .iter()
        .map(|name| {
            let path = format!("/dev/{name}");
            Ok(CageBind { device: true, ..bind(Path::new(&path), &path)? })
        })
        .collect()
}

/// Returns a read-only bind of a host path.
pub(super) fn bind(path: &Path, target: &str) -> io::Result<CageBind> {
    Ok(CageBind { source: mount_source(path)?, target: target.to_owned(), device: false })
}

/// Returns the file that a path without links leads to; sockets and pipes are refused.
pub(super) fn mount_source(path: &Path) -> io::Result<MountSource> {
    let resolve = ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let fd = openat2(CWD, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty(), resolve)
        .map_err(|errno| error_with_path(path, &errno.into()))?;
    let found = fstat(&fd)?;
    let kind = rustix::fs::FileType::from_raw_mode(found.st_mode);
    if kind.is_socket() || kind.is_fifo() || kind.is_symlink() {
        return Err(error_with_path(
            path,
            &io::Error::new(io::ErrorKind::InvalidInput, "it is not a file, directory or device"),
        ));
    }
    Ok(MountSource { path: path.to_owned(), device: found.st_dev, inode: found.st_ino, directory: kind.is_dir() })
}

fn error_with_path(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Returns the files that identify the user and the host to programs.
pub(super) fn identity_files(hostname: &str, home: &str) -> Vec<TextFile> {
    let file = |target: &str, text: String| TextFile { target: target.to_owned(), text };
    vec![
        file(
            "/etc/passwd",
            format!(
                "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\nagent:x:1000:1000:agent:{home}:/bin/sh\n\
                 nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
            ),
        ),
        file("/etc/group", "root:x:0:\nagent:x:1000:\nnogroup:x:65534:\n".to_owned()),
        file("/etc/hostname", format!("{hostname}\n")),
        file("/etc/hosts", format!("127.0.0.1 localhost {hostname}\n::1 localhost ip6-localhost {hostname}\n")),
        file("/etc/resolv.conf", "nameserver 127.0.0.1\noptions timeout:2 attempts:1\n".to_owned()),
        file(
            "/etc/nsswitch.conf",
            "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\n".to_owned(),
        ),
        file("/etc/machine-id", "00000000000000000000000000000000\n".to_owned()),
        file("/etc/shells", "/bin/sh\n/bin/bash\n".to_owned()),
    ]
}

/// Returns whether a user id is mapped in this process's user namespace.
pub(super) fn is_id_mapped(map: &str, id: u32) -> bool {
    map.lines().any(|line| {
        let mut numbers = line.split_whitespace().map(|word| word.parse::<u64>().unwrap_or(0));
        let (Some(first), _, Some(count)) = (numbers.next(), numbers.next(), numbers.next()) else { return false };
        (first..first.saturating_add(count)).contains(&u64::from(id))
    })
}

/// Returns the path as an absolute one without links.
pub(super) fn canonical_path(path: &Path) -> io::Result<PathBuf> {
    fs::canonicalize(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_looked_up_in_the_map() {
        let check = |map: &str, id: u32, want: bool| assert_eq!(is_id_mapped(map, id), want, "{map:?} {id}");
        check("         0          0 4294967295\n", 65533, true);
        check("0 1000 1\n1 100000 65536\n", 65533, true);
        check("0 1000 1\n", 65533, false);
        check("", 0, false);
        check("x y z\n", 0, false);
    }

    #[test]
    fn nothing_secret_is_bound() {
        let dir = tempfile::tempdir().expect("a folder");
        let system = read_host_system(dir.path(), "cage", "/home/agent").expect("a system");
        for bind in &system.binds {
            let secret = ["shadow", "sudoers", "ssh", "/home", "/root", "/var", "private"];
            assert!(!secret.iter().any(|word| bind.target.contains(word)), "{bind:?}");
        }
        assert!(system.binds.iter().any(|bind| bind.target == "/usr"));
    }
}
