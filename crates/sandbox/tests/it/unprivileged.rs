//! Repeats the tests that depend on the user as an ordinary user, when the tests run as root.

use std::path::PathBuf;

use ralph_testkit::unprivileged;

/// Returns the launcher to use.
pub(crate) fn launcher_program() -> PathBuf {
    unprivileged::launcher_program(env!("CARGO_BIN_EXE_ralph-cage"))
}

#[track_caller]
fn run_as_nobody(test: &str) {
    unprivileged::run_as_nobody(test, &launcher_program());
}

#[test]
fn conforms() {
    run_as_nobody("embedded::conforms");
}

#[test]
fn killed_owners_leave_nothing() {
    run_as_nobody("leftovers::owners_killed_at_any_moment_leave_nothing");
}

#[test]
fn memory_is_limited_without_a_cgroup() {
    run_as_nobody("limits::many_that_take_all_memory_together_are_ended");
}

#[test]
fn processes_are_limited_without_a_cgroup() {
    run_as_nobody("limits::a_fork_bomb_is_held_and_ends_with_its_time");
}

#[test]
fn locked_directories_are_counted() {
    run_as_nobody("limits::what_others_free_hides_nothing");
}

#[test]
fn files_are_recorded() {
    run_as_nobody("observed::files_are_recorded");
}
