//! Tests that all attacks on the egress proxy are held, and that every control works.

use ralph_redteam::cage::{self, RedteamTarget};
use ralph_redteam::egress::{self, EgressSuiteOptions};
use ralph_redteam::{AttackVerdict, RedteamReport};
use ralph_sandbox::embedded::EmbeddedOptions;

use crate::unprivileged::launcher_program;

/// Runs the selected cases of both suites.
#[expect(clippy::disallowed_methods, reason = "programs are looked for where the test's own are")]
async fn attack(only: &str) -> RedteamReport {
    let dir = tempfile::tempdir().expect("a folder");
    let program = Some(launcher_program());
    let cages = EmbeddedOptions { dir: dir.path().to_owned(), program: program.clone(), ..EmbeddedOptions::default() };
    let mut report = cage::run(&RedteamTarget::Cage(cages), Some(only), &mut |_| ()).await;
    let target = EgressSuiteOptions { program, search_path: std::env::var_os("PATH").unwrap_or_default() };
    egress::run(&target, Some(only), &mut report, &mut |_| ()).await;
    let bad: Vec<String> = report.escaped().chain(report.invalid()).map(ToString::to_string).collect();
    assert!(bad.is_empty() && report.held(), "{bad:#?}");
    report
}

async fn check(only: &str, least: usize) {
    let report = attack(only).await;
    let held = report.cases.iter().filter(|case| case.verdict == AttackVerdict::Held).count();
    assert!(held >= least, "{held} of {}", report.cases.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn network_attacks_are_held() {
    check("NE", 280).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dns_attacks_are_held() {
    check("DN", 100).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn proxy_and_credential_attacks_are_held() {
    check("PC", 200).await;
}
