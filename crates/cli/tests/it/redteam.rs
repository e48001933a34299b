//! The attacks on the way out, through the real program: every one of them is held, and every control works.

use std::process::Stdio;

use ralph_testkit::repo::hermetic_command;
use serde_json::Value;

/// Runs the cases of a choice and returns them.
#[track_caller]
fn attack(only: &str) -> Vec<Value> {
    let home = tempfile::tempdir().unwrap();
    let mut command = hermetic_command(env!("CARGO_BIN_EXE_ralph"), home.path());
    command.args(["redteam", "--only", only, "--json"]).current_dir(home.path()).stdin(Stdio::null());
    let output = command.output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    let cases = report["cases"].as_array().unwrap().clone();
    let held = |case: &&Value| case["verdict"] != "held" && case["verdict"]["skipped"].is_null();
    let bad: Vec<&Value> = cases.iter().filter(held).collect();
    assert!(bad.is_empty() && output.status.success(), "{bad:#?}");
    cases
}

#[track_caller]
fn check(only: &str, least: usize) {
    let cases = attack(only);
    let held = cases.iter().filter(|case| case["verdict"] == "held").count();
    assert!(held >= least, "{held} of {}", cases.len());
}

#[test]
fn the_network() {
    check("NE", 280);
}

#[test]
fn names() {
    check("DN", 100);
}

#[test]
fn the_way_out_and_credentials() {
    check("PC", 200);
}

/// A choice means the cases of both rooms.
#[test]
fn a_choice_runs_only_what_it_means() {
    let ids: Vec<String> = attack("NE-14").iter().map(|case| case["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(ids, ["NE-14.v6", "NE-14.tls", "NE-14.connect", "NE-14.socks"]);
}
