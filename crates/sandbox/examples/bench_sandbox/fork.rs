//! Measures the time from a snapshot to the first command in a fork of it, for a small and a large snapshot.

use std::time::Instant;

use ralph_sandbox::Backend as _;
use ralph_sandbox::embedded::EmbeddedBackend;
use ralph_testkit::bench::{BenchReport, BenchResult, FigureTarget, SampleSeries};

use crate::latency::{run, spec};
use crate::peers::elapsed_ms;

const FORK: &str = "fork of a snapshot";
const READY: &str = "fork of a snapshot → first exec";

/// The target for the first command in a fork.
const MAX_MS: f64 = 20.0;
/// How much longer it may take for the large snapshot; more than this is not noise.
const MAX_GROWTH: f64 = 1.5;

const SMALL: (&str, u32) = ("1 MB", 1);
const LARGE: (&str, u32) = ("2 GB", 2048);

pub(crate) async fn measure(
    report: &mut BenchReport,
    backend: &EmbeddedBackend,
    rounds: usize,
    quick: bool,
) -> BenchResult<()> {
    let sizes = if quick { vec![SMALL] } else { vec![SMALL, LARGE] };
    let mut snapshots = Vec::new();
    for (name, mib) in &sizes {
        snapshots.push((*name, snapshot(backend, *mib).await?));
    }
    let mut series: Vec<[SampleSeries; 2]> =
        sizes.iter().map(|(name, _)| [FORK, READY].map(|group| SampleSeries::new(group, *name, "ms"))).collect();
    for round in 0..rounds {
        for ((_, snapshot), [forks, readies]) in snapshots.iter().zip(&mut series) {
            let began = Instant::now();
            let sandbox = backend.fork(snapshot, &spec(&format!("fork-{round}"))).await?;
            forks.values.push(elapsed_ms(began));
            run(&*sandbox, &["/bin/true"]).await?;
            readies.values.push(elapsed_ms(began));
            sandbox.destroy().await?;
        }
    }
    let medians: Vec<f64> = series.iter().filter_map(|[_, readies]| readies.p50()).collect();
    let mut series: Vec<SampleSeries> = series.into_iter().flatten().collect();
    series.sort_by_key(|series| series.group == READY);
    report.series.extend(series);
    for ((name, _), median) in sizes.iter().zip(&medians) {
        report.figures.add_with_target(format!("{READY}, {name}"), *median, MAX_MS, "ms");
    }
    let growth = match (medians.first(), medians.get(1)) {
        (Some(small), Some(large)) => Ok(large / small),
        _ => Err("left out by `--quick`".to_owned()),
    };
    report.figures.add_result(format!("{READY}: 2 GB / 1 MB"), growth, FigureTarget::AtMost(MAX_GROWTH), "×");
    Ok(())
}

/// Fills a sandbox with files of 1 MiB and takes a snapshot of it.
async fn snapshot(backend: &EmbeddedBackend, mib: u32) -> BenchResult<String> {
    let sandbox = backend.create(&spec(&format!("snapshot-{mib}"))).await?;
    let fill = format!("i=0; while [ $i -lt {mib} ]; do head -c 1048576 /dev/urandom > f$i; i=$((i+1)); done");
    run(&*sandbox, &["sh", "-c", &fill]).await?;
    let name = sandbox.snapshot().await?;
    sandbox.destroy().await?;
    Ok(name)
}
