//! Measures how long one call takes over a reused connection, for each setup in turn.

use std::time::Instant;

use ralph_testkit::bench::{BenchReport, BenchResult, SampleSeries};

use crate::client::{BenchConnection, ClientSetup};
use crate::setup::ProxyCandidate;

pub(crate) const REVERSE: &str = "one call by a base URL";
pub(crate) const SPLICE: &str = "one call through a tunnel";
pub(crate) const INTERCEPT: &str = "one call through a tunnel that is looked into";
pub(crate) const PLAIN: &str = "one plain call in absolute form";
/// Calls that are made before anything is counted.
const WARM: usize = 20;

pub(crate) async fn measure(
    report: &mut BenchReport,
    group: &'static str,
    all: &[ProxyCandidate<ClientSetup>],
    rounds: usize,
) {
    let mut lanes = Vec::new();
    for one in all {
        let mut series = SampleSeries::new(group, one.name, "ms");
        let link = match &one.way {
            Ok(way) => begin(way).await.map(|link| (way, link)).map_err(|error| error.to_string()),
            Err(why) => Err(why.clone()),
        };
        series.missing = link.as_ref().err().cloned();
        lanes.push((series, link.ok()));
    }
    for _ in 0..rounds {
        for (series, link) in &mut lanes {
            let Some((way, open)) = link else { continue };
            let began = Instant::now();
            match open.ask(way).await {
                Ok(()) => series.values.push(began.elapsed().as_secs_f64() * 1000.0),
                Err(error) => {
                    series.values.clear();
                    series.missing = Some(format!("a call failed: {error}"));
                    *link = None;
                }
            }
        }
    }
    report.series.extend(lanes.into_iter().map(|(series, _)| series));
}

async fn begin(way: &ClientSetup) -> BenchResult<BenchConnection> {
    let mut link = way.open().await?;
    for _ in 0..WARM {
        link.ask(way).await?;
    }
    Ok(link)
}
