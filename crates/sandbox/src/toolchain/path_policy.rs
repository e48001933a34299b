//! Decides which directories may be shown at all, whatever the configuration says. Checks one real path at a time;
//! its contents are checked elsewhere.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::host::{HostPaths, SANDBOX_HOME};

/// Folders of a home that hold keys, sessions and settings. They are not shown, nor anything in them, nor a folder
/// that contains them.
const SECRET_DIRS: &[&str] = &[
    ".1password",
    ".aws",
    ".azure",
    ".claude",
    ".codex",
    ".config",
    ".docker",
    ".electrum",
    ".gemini",
    ".gnupg",
    ".kube",
    ".local/share/keyrings",
    ".local/share/ralph",
    ".local/state",
    ".mozilla",
    ".password-store",
    ".pki",
    ".ssh",
    ".terraform.d",
    ".thunderbird",
    ".var",
];

/// Folders that contain too much to be shown, although single folders in them may be.
const TOO_WIDE_AT_HOME: &[&str] = &[".cache", ".local/lib", "snap"];
const TOO_WIDE: &[&str] = &["/home", "/mnt", "/media", "/nix", "/opt", "/root", "/srv", "/tmp", "/var", "/var/lib"];

/// Paths that are not files of the host, or that the cage is there to protect.
const FORBIDDEN_DIRS: &[&str] = &["/boot", "/dev", "/etc", "/proc", "/run", "/sys", "/var/lib/docker", "/var/run"];

/// Paths where the cage has its own content.
const RESERVED_DIRS: &[&str] =
    &["/bin", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/proc", "/run", "/sbin", "/sys", "/usr", "/workspace"];

/// The user's home, as named and as resolved.
#[derive(Debug, Clone)]
pub(super) struct UserHome {
    pub(super) named: PathBuf,
    pub(super) real: PathBuf,
}

impl UserHome {
    pub(super) fn contains(&self, path: &Path) -> bool {
        path.starts_with(&self.named) || path.starts_with(&self.real)
    }
}

/// The home of root, which belongs to root wherever `HOME` points.
const ROOT: &str = "/root";

/// Checks that a real directory may be shown; the error is the reason why not.
pub(super) fn check_dir(home: &UserHome, places: &HostPaths, real: &Path) -> Result<(), &'static str> {
    if real.parent().is_none() {
        return Err("it is the root of the file system");
    }
    for own in [home.named.as_path(), home.real.as_path(), Path::new(ROOT)] {
        if own.starts_with(real) {
            return Err("it contains the home folder");
        }
        let Ok(rest) = real.strip_prefix(own) else { continue };
        if SECRET_DIRS.iter().any(|secret| rest.starts_with(secret) || Path::new(secret).starts_with(rest)) {
            return Err("keys and settings are kept there");
        }
        if TOO_WIDE_AT_HOME.iter().any(|wide| rest == Path::new(wide)) {
            return Err("it contains too much");
        }
    }
    if FORBIDDEN_DIRS.iter().any(|never| real.starts_with(never)) {
        return Err("the sandbox has its own");
    }
    if TOO_WIDE.iter().any(|wide| real == Path::new(wide)) || real == places.opt || real == places.homes {
        return Err("it contains too much");
    }
    if !home.contains(real) && is_other_users(places, real) {
        return Err("it is another user's");
    }
    if is_world_writable(real) {
        return Err("every user may write there");
    }
    Ok(())
}

/// Returns whether the cage allows a bind at this path.
pub(super) fn is_free(target: &Path) -> bool {
    let own_home = Path::new(SANDBOX_HOME).starts_with(target);
    !own_home && !RESERVED_DIRS.iter().any(|taken| target.starts_with(taken))
}

/// Homebrew on Linux is installed in a home that no user has.
fn is_other_users(places: &HostPaths, real: &Path) -> bool {
    let brew = places.homes.join("linuxbrew");
    (real.starts_with(&places.homes) && !real.starts_with(brew))
        || (real.starts_with(ROOT) && !rustix::process::geteuid().is_root())
}

/// Returns whether other users could put programs there: everybody may write to the directory, or to one above it
/// that has no sticky bit, so that they could replace the directory.
fn is_world_writable(real: &Path) -> bool {
    let mode = |path: &Path| fs::metadata(path).map_or(0o777, |meta| meta.permissions().mode());
    let open = |mode: u32| mode & 0o002 != 0;
    let sticky = |mode: u32| mode & 0o1000 != 0;
    open(mode(real)) || real.ancestors().skip(1).map(mode).any(|mode| open(mode) && !sticky(mode))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_checked_by_their_path() {
        let base = tempfile::tempdir().expect("a directory");
        let base = fs::canonicalize(base.path()).expect("it exists");
        let places = HostPaths { homes: base.join("home"), opt: base.join("opt"), ..HostPaths::default() };
        let named = base.join("home/u");
        let home = UserHome { named: named.clone(), real: named };
        let check = |path: &str, want: Result<(), &str>| {
            let real = if path.starts_with('/') { PathBuf::from(path) } else { base.join(path) };
            if real.starts_with(&base) {
                fs::create_dir_all(&real).expect("made");
            }
            assert_eq!(check_dir(&home, &places, &real), want, "{path}");
        };
        check("/", Err("it is the root of the file system"));
        check("home", Err("it contains the home folder"));
        check("home/u", Err("it contains the home folder"));
        check("home/u/.ssh", Err("keys and settings are kept there"));
        check("home/u/.ssh/bin", Err("keys and settings are kept there"));
        check("home/u/.config/yarn/bin", Err("keys and settings are kept there"));
        check("home/u/.local", Err("keys and settings are kept there"));
        check("home/u/.local/share", Err("keys and settings are kept there"));
        check("home/u/.local/bin", Ok(()));
        check("home/u/.cache", Err("it contains too much"));
        check("home/u/.cargo/bin", Ok(()));
        check("home/other/bin", Err("it is another user's"));
        check("home/linuxbrew/.linuxbrew/bin", Ok(()));
        check("opt", Err("it contains too much"));
        check("opt/x", Ok(()));
        check("/proc/1", Err("the sandbox has its own"));
        check("/etc/alternatives", Err("the sandbox has its own"));
        check("/var", Err("it contains too much"));

        let open = base.join("home/u/open");
        fs::create_dir_all(open.join("bin")).expect("made");
        fs::set_permissions(&open, fs::Permissions::from_mode(0o777)).expect("set");
        check("home/u/open", Err("every user may write there"));
        check("home/u/open/bin", Err("every user may write there"));
        fs::set_permissions(&open, fs::Permissions::from_mode(0o1777)).expect("set");
        check("home/u/open/bin", Ok(()));
    }

    #[test]
    fn reserved_paths_are_not_free() {
        let check = |path: &str, want| assert_eq!(is_free(Path::new(path)), want, "{path}");
        check("/home/u/.cargo/bin", true);
        check("/opt/x", true);
        check("/run/user/1000/x", false);
        check("/workspace", false);
        check("/home/agent", false);
        check("/home/agent/.nvm", true);
        check("/", false);
    }
}
