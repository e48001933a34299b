//! Benchmarks, in the build that is given to users. They measure; tests judge nothing by the clock.

use crate::options::{BenchKind, PeerInstall};
use crate::workspace::ProjectWorkspace;
use crate::{subprocess, third_party};

/// Runs a bench: it prints each figure with its target and fails when one is missed.
pub(crate) fn run(house: &ProjectWorkspace, bench: BenchKind, arguments: &[String]) -> anyhow::Result<()> {
    match bench {
        BenchKind::Loop => run_example(house, "ralph-engine", "bench_loop", arguments),
        BenchKind::Sandbox(wanted) => {
            if wanted == PeerInstall::Install {
                third_party::install_cages(house)?;
            }
            // What becomes the launcher is a program of its own, and is looked for beside the bench.
            let mut cage = subprocess::cargo(&house.root);
            cage.args(["build", "--profile", "dist", "--locked", "--package", "ralph-sandbox", "--bin", "ralph-cage"]);
            subprocess::run(&mut cage)?;
            run_example(house, "ralph-sandbox", "bench_sandbox", &with_peer_paths(house, arguments))
        }
        BenchKind::Proxy(wanted) => {
            if wanted == PeerInstall::Install {
                third_party::install_proxies(house)?;
            }
            run_example(house, "ralph-proxy", "bench_proxy", &with_peer_paths(house, arguments))
        }
    }
}

/// Adds where the others are.
fn with_peer_paths(house: &ProjectWorkspace, arguments: &[String]) -> Vec<String> {
    let folder = third_party::folder(house).to_string_lossy().into_owned();
    let path = std::env::var("PATH").unwrap_or_default();
    let ours = ["--peers", &folder, "--path", &path].map(str::to_owned);
    ours.into_iter().chain(arguments.to_vec()).collect()
}

fn run_example(house: &ProjectWorkspace, package: &str, name: &str, arguments: &[String]) -> anyhow::Result<()> {
    let mut bench = subprocess::cargo(&house.root);
    bench.args(["run", "--profile", "dist", "--locked", "--package", package, "--example", name, "--"]);
    subprocess::run(bench.args(arguments))
}
