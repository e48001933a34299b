//! Runs the attack suite against the cage, complete and with each of its mechanisms disabled.

use std::path::Path;

use ralph_redteam::cage::{RedteamTarget, run};
use ralph_redteam::{AttackVerdict, RedteamReport};
use ralph_sandbox::embedded::{EmbeddedOptions, IsolationMechanism};
use ralph_sandbox::local::LocalBackend;

use crate::unprivileged::launcher_program;

fn options(dir: &Path) -> EmbeddedOptions {
    EmbeddedOptions { dir: dir.to_owned(), program: Some(launcher_program()), ..EmbeddedOptions::default() }
}

async fn attack(without: Vec<IsolationMechanism>, only: Option<&str>) -> RedteamReport {
    let dir = tempfile::tempdir().expect("a folder");
    let target = RedteamTarget::Cage(EmbeddedOptions { disabled_mechanisms: without, ..options(dir.path()) });
    run(&target, only, &mut |_| ()).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_whole_cage_holds() {
    let report = attack(Vec::new(), None).await;
    let bad: Vec<String> = report.escaped().chain(report.invalid()).map(ToString::to_string).collect();
    let held = report.cases.iter().filter(|case| case.verdict == AttackVerdict::Held).count();
    assert!(bad.is_empty() && held >= 110, "{bad:#?}\n{held} held of {}\n{report}", report.cases.len());
}

/// A mechanism whose absence no case detects might as well not exist.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_missing_mechanism_is_noticed() {
    for mechanism in IsolationMechanism::ALL {
        let name = serde_json::to_value(mechanism).expect("a name");
        let only = format!("mechanism:{}", name.as_str().expect("a name"));
        let report = attack(vec![mechanism], Some(&only)).await;
        assert!(report.escaped().next().is_some(), "no case detects that {mechanism:?} is missing:\n{report}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_selection_runs_only_its_cases() {
    let report = attack(Vec::new(), Some("PR-18")).await;
    let ids: Vec<&str> = report.cases.iter().map(|case| case.id).collect();
    assert_eq!(ids, ["PR-18.capabilities", "PR-18.privileges", "PR-18.filter", "PR-18.root"]);
}

/// The attacks are real: they must not run where nothing would stop them.
#[tokio::test]
async fn the_host_itself_is_never_attacked() {
    let dir = tempfile::tempdir().expect("a folder");
    let local = LocalBackend::new(dir.path().to_owned());
    let report = run(&RedteamTarget::Other(&local), None, &mut |_| ()).await;
    assert!(report.cases.len() > 110 && report.skipped().count() == report.cases.len(), "{report}");
}
