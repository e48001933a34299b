//! Runs tests once more as an ordinary user when they run as root, because the tests are about unprivileged users.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The user and group `nobody`.
const NOBODY_UID: u32 = 65_534;
/// The variable with the path of the launcher's copy, for a user who cannot read the build folder.
const LAUNCHER_VARIABLE: &str = "RALPH_TEST_CAGE";

/// Returns the launcher to use: the copy made for an ordinary user, or the one that was built.
#[expect(clippy::disallowed_methods, reason = "the variable is how the test tells its copy run as another user")]
pub fn launcher_program(built: &str) -> PathBuf {
    std::env::var_os(LAUNCHER_VARIABLE).map_or_else(|| built.into(), Into::into)
}

/// Runs one test of this test program as `nobody`. Does nothing for an ordinary user: the test itself ran as one.
#[track_caller]
pub fn run_as_nobody(test: &str, launcher: &Path) {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary directory");
    let open = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("permissions can be set");
    };
    open(folder.path(), 0o777);
    let copy = |from: &Path, name: &str| {
        let to = folder.path().join(name);
        fs::copy(from, &to).expect("the program can be copied");
        open(&to, 0o755);
        to
    };
    let own = copy(&std::env::current_exe().expect("the path of this program"), "tests");
    let cage = copy(launcher, "cage");
    let mut command = Command::new(own);
    command.args([test, "--exact", "--test-threads", "2"]).current_dir(folder.path()).uid(NOBODY_UID).gid(NOBODY_UID);
    command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env(LAUNCHER_VARIABLE, cage);
    command.env("HOME", folder.path()).env("TMPDIR", folder.path());
    let out = command.output().expect("the test program starts");
    let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success() && text.contains("1 passed"), "{text}");
}
