//! Benchmarks, in a release build. They measure; tests judge nothing by the clock.

use crate::house::House;
use crate::options::{Bench, Peers};
use crate::{peers, program};

/// Runs a bench: it prints each figure with its target and fails when one is missed.
pub(crate) fn run(house: &House, bench: Bench, arguments: &[String]) -> anyhow::Result<()> {
    match bench {
        Bench::Loop => example(house, "ralph-engine", "bench_loop", arguments),
        Bench::Sandbox(wanted) => {
            if wanted == Peers::Install {
                peers::install_cages(house)?;
            }
            // What becomes the launcher is a program of its own, and is looked for beside the bench.
            let mut cage = program::cargo(&house.root);
            cage.args(["build", "--release", "--locked", "--package", "ralph-sandbox", "--bin", "ralph-cage"]);
            program::run(&mut cage)?;
            example(house, "ralph-sandbox", "bench_sandbox", &among_peers(house, arguments))
        }
        Bench::Proxy(wanted) => {
            if wanted == Peers::Install {
                peers::install_proxies(house)?;
            }
            example(house, "ralph-proxy", "bench_proxy", &among_peers(house, arguments))
        }
    }
}

/// Adds where the others are.
fn among_peers(house: &House, arguments: &[String]) -> Vec<String> {
    let folder = peers::folder(house).to_string_lossy().into_owned();
    let path = std::env::var("PATH").unwrap_or_default();
    let ours = ["--peers", &folder, "--path", &path].map(str::to_owned);
    ours.into_iter().chain(arguments.to_vec()).collect()
}

fn example(house: &House, package: &str, name: &str, arguments: &[String]) -> anyhow::Result<()> {
    let mut bench = program::cargo(&house.root);
    bench.args(["run", "--release", "--locked", "--package", package, "--example", name, "--"]);
    program::run(bench.args(arguments))
}
