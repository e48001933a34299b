//! Runs the tests that depend on the user again as an unprivileged user, if the tests run as root.

use std::path::PathBuf;

use ralph_testkit::unprivileged;

/// Returns the launcher to use.
pub(crate) fn launcher_program() -> PathBuf {
    unprivileged::launcher_program(env!("CARGO_BIN_EXE_redteam-cage"))
}

#[track_caller]
fn run_as_nobody(test: &str) {
    unprivileged::run_as_nobody(test, &launcher_program());
}

#[test]
fn the_whole_cage_holds() {
    run_as_nobody("cage::the_whole_cage_holds");
}

#[test]
fn every_missing_mechanism_is_noticed() {
    run_as_nobody("cage::every_missing_mechanism_is_noticed");
}

#[test]
fn a_product_cannot_reach_its_judge() {
    run_as_nobody("proofs::a_product_cannot_reach_its_judge");
}
