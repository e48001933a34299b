//! Everything once more as an ordinary user, when the tests run as root: what an unprivileged user gets is the point.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::Command;

/// The user that nobody is.
const NOBODY_UID: u32 = 65_534;
/// Where the launcher was copied to, for a user that may not see where it was built.
pub(crate) const PROGRAM_VARIABLE: &str = "RALPH_TEST_CAGE";

/// The launcher to use: a copy that was named, or the one that was built.
pub(crate) fn launcher_program() -> std::path::PathBuf {
    std::env::var_os(PROGRAM_VARIABLE).map_or_else(|| env!("CARGO_BIN_EXE_ralph-cage").into(), Into::into)
}

/// Runs one test of this program as an ordinary user.
#[track_caller]
fn run_as_nobody(test: &str) {
    if !rustix::process::geteuid().is_root() {
        // Then the test itself has just run so.
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let open = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    open(folder.path(), 0o777);
    let copy = |from: &Path, name: &str| {
        let to = folder.path().join(name);
        fs::copy(from, &to).unwrap();
        open(&to, 0o755);
        to
    };
    let own = copy(&std::env::current_exe().unwrap(), "tests");
    let cage = copy(&launcher_program(), "cage");
    let mut command = Command::new(own);
    command.args([test, "--exact", "--test-threads", "2"]).current_dir(folder.path()).uid(NOBODY_UID).gid(NOBODY_UID);
    command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env(PROGRAM_VARIABLE, cage);
    command.env("HOME", folder.path()).env("TMPDIR", folder.path());
    let out = command.output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
    assert!(out.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
fn conforms() {
    run_as_nobody("embedded::conforms");
}

#[test]
fn the_whole_cage_holds() {
    run_as_nobody("redteam::the_whole_cage_holds");
}

#[test]
fn every_missing_wall_is_noticed() {
    run_as_nobody("redteam::every_missing_wall_is_noticed");
}

#[test]
fn leaves_nothing() {
    run_as_nobody("leftovers::owners_killed_at_any_moment_leave_nothing");
}

#[test]
fn memory_is_held_without_a_group() {
    run_as_nobody("limits::many_that_take_all_memory_together_are_ended");
}

#[test]
fn processes_are_held_without_a_group() {
    run_as_nobody("limits::a_fork_bomb_is_held_and_ends_with_its_time");
}

#[test]
fn what_is_locked_is_counted() {
    run_as_nobody("limits::what_others_free_hides_nothing");
}
