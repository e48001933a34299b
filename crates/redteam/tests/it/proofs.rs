//! Runs the attacks on proofs.

use ralph_redteam::proofs::{ProofTarget, run};
use ralph_redteam::{AttackVerdict, RedteamReport};
use ralph_sandbox::embedded::{EmbeddedBackend, EmbeddedOptions};

use crate::unprivileged::launcher_program;

#[expect(clippy::disallowed_methods, reason = "programs are looked for where the test's own are")]
async fn attack(only: Option<&str>) -> RedteamReport {
    let dir = tempfile::tempdir().expect("a folder");
    let options =
        EmbeddedOptions { dir: dir.path().to_owned(), program: Some(launcher_program()), ..EmbeddedOptions::default() };
    let backend = EmbeddedBackend::new(options);
    let target = ProofTarget { backend: &backend, search_path: std::env::var_os("PATH").expect("a PATH") };
    let mut report = RedteamReport { backend: "embedded".to_owned(), cases: Vec::new() };
    run(&target, only, &mut report, &mut |_| ()).await;
    report
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_forged_proof_is_believed() {
    let report = attack(None).await;
    let bad: Vec<String> = report.escaped().chain(report.invalid()).map(ToString::to_string).collect();
    let held = report.cases.iter().filter(|case| case.verdict == AttackVerdict::Held).count();
    assert!(bad.is_empty() && held >= 40, "{bad:#?}\n{held} held of {}\n{report}", report.cases.len());
}

/// What the kernel has to refuse, or what only a watch on folders shows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_product_cannot_reach_its_judge() {
    for only in ["PF-05", "PF-07"] {
        let report = attack(Some(only)).await;
        assert!(report.held(), "{report}");
    }
}
