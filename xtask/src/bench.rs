//! Runs the benchmarks in the build that users get. Only benchmarks measure time; no test depends on the clock.

use crate::options::{BenchKind, PeerInstall};
use crate::workspace::ProjectWorkspace;
use crate::{subprocess, third_party};

/// Runs a bench: it prints each figure with its target and fails when one is missed.
pub(crate) fn run(workspace: &ProjectWorkspace, bench: BenchKind, arguments: &[String]) -> anyhow::Result<()> {
    match bench {
        BenchKind::Loop => run_example(workspace, "ralph-engine", "bench_loop", arguments),
        BenchKind::Sandbox(wanted) => {
            if wanted == PeerInstall::Install {
                third_party::install_cages(workspace)?;
            }
            // The launcher is a program of its own, which the bench looks for in its own folder.
            let mut cage = subprocess::cargo(&workspace.root);
            cage.args(["build", "--profile", "dist", "--locked", "--package", "ralph-sandbox", "--bin", "ralph-cage"]);
            subprocess::run(&mut cage)?;
            run_example(workspace, "ralph-sandbox", "bench_sandbox", &with_peer_paths(workspace, arguments))
        }
        BenchKind::Proxy(wanted) => {
            if wanted == PeerInstall::Install {
                third_party::install_proxies(workspace)?;
            }
            run_example(workspace, "ralph-proxy", "bench_proxy", &with_peer_paths(workspace, arguments))
        }
    }
}

/// Adds the paths of the programs to compare with.
fn with_peer_paths(workspace: &ProjectWorkspace, arguments: &[String]) -> Vec<String> {
    let folder = third_party::folder(workspace).to_string_lossy().into_owned();
    let path = std::env::var("PATH").unwrap_or_default();
    let ours = ["--peers", &folder, "--path", &path].map(str::to_owned);
    ours.into_iter().chain(arguments.to_vec()).collect()
}

fn run_example(workspace: &ProjectWorkspace, package: &str, name: &str, arguments: &[String]) -> anyhow::Result<()> {
    let mut bench = subprocess::cargo(&workspace.root);
    bench.args(["run", "--profile", "dist", "--locked", "--package", package, "--example", name, "--"]);
    subprocess::run(bench.args(arguments))
}
