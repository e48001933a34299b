//! Measures ralph's own share of an iteration in time, disk and memory: real runs with a scripted model and an action
//! that does nothing, each figure with its target beside it. Exits with code 1 if a target is missed.
//!
//! The machine's own costs (starting a program, flushing a file) are measured in the same moments, so that figures of
//! different machines can be compared. Not here: checks, proofs and real models.

mod bench_run;
mod event_fold;
mod figures;
mod large_files;
mod large_repository;
mod machine_baseline;
mod process_usage;
mod run_list;

use std::error::Error;
use std::io::Write as _;
use std::process::ExitCode;

use ralph_testkit::bench::report_failure;

use crate::bench_run::{BenchAction, drive};
use crate::figures::FigureTable;

/// The error of every part of the bench; it only ever goes to a terminal.
pub(crate) type BenchResult<T> = Result<T, Box<dyn Error>>;

const USAGE: &str = "usage: bench_loop [--json] [--iterations N] [--quick]\n\n  \
    --iterations N  iterations of each run, at least 40 (1000)\n  \
    --quick         omit the large repository and the large log\n  \
    --json          print one JSON object\n";

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

struct BenchOptions {
    json: bool,
    quick: bool,
    iterations: u32,
}

fn main() -> ExitCode {
    let options = match options(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(code) => return code,
    };
    let measured = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(Into::into)
        .and_then(|runtime| runtime.block_on(measure(&options)));
    match measured {
        Ok(table) => {
            let text = if options.json { table.json() } else { table.text() };
            // If the output cannot be written, the exit code still tells.
            let _ = std::io::stdout().write_all(text.as_bytes());
            if table.passed() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => report_failure(&*error),
    }
}

fn options(args: impl Iterator<Item = String>) -> Result<BenchOptions, ExitCode> {
    let mut options = BenchOptions { json: false, quick: false, iterations: 1000 };
    let mut args = args;
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--json" => options.json = true,
            "--quick" => options.quick = true,
            "--iterations" => match args.next().and_then(|n| n.parse().ok()) {
                Some(n) if n >= 40 => options.iterations = n,
                _ => return Err(usage(ExitCode::from(2))),
            },
            "--help" | "-h" => return Err(usage(ExitCode::SUCCESS)),
            _ => return Err(usage(ExitCode::from(2))),
        }
    }
    Ok(options)
}

fn usage(code: ExitCode) -> ExitCode {
    let _ = std::io::stderr().write_all(USAGE.as_bytes());
    code
}

async fn measure(options: &BenchOptions) -> BenchResult<FigureTable> {
    let mut table = FigureTable::default();
    table.section("the machine");
    machine_baseline::measure(&mut table).await?;
    let mut kept = Vec::new();
    for kind in [BenchAction::Run, BenchAction::Write] {
        table.section(kind.title());
        let driven = Box::pin(drive(kind, options.iterations, bench_run::SMALL_REPOSITORY_FILES, None)).await?;
        driven.add_figures(&mut table);
        kept.push(driven);
    }
    table.section("reading a run back");
    event_fold::measure(&mut table)?;
    run_list::measure(&mut table)?;
    if !options.quick {
        table.section("large inputs");
        Box::pin(large_repository::measure(&mut table)).await?;
    }
    Ok(table)
}
