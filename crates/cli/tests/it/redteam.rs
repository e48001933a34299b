//! Tests `ralph redteam` through the real program: it attacks with both suites and reports the result of each case.

use std::process::Stdio;

use ralph_testkit::repo::hermetic_command;
use serde_json::Value;

/// Runs the selected cases and returns them.
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

/// A selection includes the cases of both suites.
#[test]
fn a_selection_runs_only_its_cases() {
    let ids: Vec<String> = attack("NE-14").iter().map(|case| case["id"].as_str().unwrap().to_owned()).collect();
    assert_eq!(ids, ["NE-14.v6", "NE-14.tls", "NE-14.connect", "NE-14.socks"]);
}

/// The program attacks with itself: as the launcher, as the probe inside a cage, and as the client of the proxy.
#[test]
fn both_suites_run_from_the_program_itself() {
    for only in ["PR-18.filter", "NE-14.connect"] {
        let cases = attack(only);
        assert_eq!(cases.len(), 1, "{cases:#?}");
        assert_eq!(cases[0]["verdict"], "held", "{cases:#?}");
    }
}
