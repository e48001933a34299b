//! Benchmarks, in a release build. They measure; tests judge nothing by the clock.

use crate::house::House;
use crate::program;

/// Runs the bench of the loop: it prints each figure with its target and fails when one is missed.
pub(crate) fn run(house: &House, arguments: &[String]) -> anyhow::Result<()> {
    let mut bench = program::cargo(&house.root);
    bench.args(["run", "--release", "--locked", "--package", "ralph-engine", "--example", "bench_loop", "--"]);
    program::run(bench.args(arguments))
}
