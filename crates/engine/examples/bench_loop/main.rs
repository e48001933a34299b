//! Measures ralph's own share of an iteration in time, disk and memory: real runs with a scripted model and an action
//! that does nothing, each figure with its target beside it. Exits with code 1 if a target is missed.
//!
//! The machine's own costs (starting a program, flushing a file) are measured in the same moments, so that figures of
//! different machines can be compared. Not here: whole proofs and real models.

mod bench_run;
mod event_fold;
mod figures;
mod held_files;
mod large_files;
mod large_repository;
mod machine_baseline;
mod process_usage;
mod run_list;

use std::process::ExitCode;

use ralph_testkit::bench::{BenchArguments, BenchOption, BenchProgram, BenchReport, bench_runtime};

use crate::bench_run::{BenchAction, drive};

pub(crate) use ralph_testkit::bench::BenchResult;

const ITERATIONS: BenchOption =
    BenchOption::number("--iterations", 1000, 40..=1_000_000, "iterations of each run, at least 40");
const QUICK: BenchOption = BenchOption::quick("omit the large repository and the large log");
const BENCH: BenchProgram = BenchProgram {
    name: "bench_loop",
    options: &[BenchOption::JSON, BenchOption::STRICT, ITERATIONS, QUICK],
    page: None,
};

/// Ralph's share of an iteration, without checks.
const SHARE_MS: f64 = 25.0;
/// How much it may grow from the first iterations to the last.
const GROWTH: f64 = 1.5;
/// The fold of `event_fold::EVENTS` events.
const FOLD_MS: f64 = 500.0;
/// A list of ten thousand runs.
const LIST_MS: f64 = 300.0;
/// How much memory may grow from iteration 20 to the last.
const MEMORY_GROWTH_MIB: f64 = 8.0;

fn main() -> ExitCode {
    BENCH.run(std::env::args().skip(1), |arguments| bench_runtime()?.block_on(measure(arguments)))
}

async fn measure(arguments: &BenchArguments) -> BenchResult<BenchReport> {
    let (iterations, quick) = (arguments.number(&ITERATIONS), arguments.has(&QUICK));
    let quick_word = if quick { " --quick" } else { "" };
    let mut report = BenchReport::new(format!("cargo xtask bench loop --iterations {iterations}{quick_word}"), &[]);
    let table = &mut report.figures;
    table.section("the machine");
    machine_baseline::measure(table).await?;
    let mut kept = Vec::new();
    for kind in [BenchAction::Run, BenchAction::Write] {
        table.section(kind.title());
        let driven = Box::pin(drive(kind, iterations, bench_run::SMALL_REPOSITORY_FILES, None)).await?;
        driven.add_figures(table);
        kept.push(driven);
    }
    table.section("reading a run back");
    event_fold::measure(table)?;
    run_list::measure(table)?;
    table.section("checks");
    held_files::measure(table, arguments.search_path()).await?;
    if !quick {
        table.section("large inputs");
        Box::pin(large_repository::measure(table)).await?;
    }
    Ok(report)
}
