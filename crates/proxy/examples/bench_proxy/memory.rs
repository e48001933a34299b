//! Measures the memory of a proxy while a great many idle clients are connected.

use ralph_testkit::bench::{BenchReport, BenchResult, SampleSeries};

use crate::client::{BenchConnection, ClientSetup};
use crate::proxy_process::ProxyProcess;
use crate::setup::ProxyBenchSetup;

pub(crate) const GROUP: &str = "memory with 1000 idle connections";
pub(crate) const ALONE: &str = "memory before that";
const CONNECTIONS: usize = 1000;

pub(crate) async fn measure(report: &mut BenchReport, setup: &ProxyBenchSetup) {
    let (mut before, mut after) = (Vec::new(), Vec::new());
    for one in &setup.reverse {
        let Some((_, running)) = setup.running.iter().find(|(name, _)| *name == one.name) else {
            if let Err(why) = &one.way {
                after.push(SampleSeries::missing(GROUP, one.name, "MiB", why));
            }
            continue;
        };
        // A proxy without a base URL is measured with plain requests, which hold connections just as well.
        let plain = setup.plain.iter().find(|plain| plain.name == one.name).and_then(|plain| plain.way.as_ref().ok());
        let way = one.way.as_ref().ok().or(plain);
        let (mut alone, mut crowded) =
            (SampleSeries::new(ALONE, one.name, "MiB"), SampleSeries::new(GROUP, one.name, "MiB"));
        match way {
            Some(way) => match hold_connections(way, running).await {
                Ok((few, many)) => {
                    alone.values.push(few);
                    crowded.values.push(many);
                }
                Err(error) => crowded.missing = Some(error.to_string()),
            },
            None => crowded.missing = one.way.as_ref().err().cloned(),
        }
        before.push(alone);
        after.push(crowded);
    }
    report.series.extend(before);
    report.series.extend(after);
}

async fn hold_connections(way: &ClientSetup, running: &ProxyProcess) -> BenchResult<(f64, f64)> {
    let hidden = "the kernel does not show its memory";
    let few = running.memory().ok_or(hidden)?;
    let mut links: Vec<BenchConnection> = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut link = way.open().await?;
        link.ask(way).await?;
        links.push(link);
    }
    let many = running.memory().ok_or(hidden)?;
    // Some proxies close idle connections, and then the figure would be of fewer.
    match links.iter().filter(|link| link.is_closed()).count() {
        0 => Ok((few, many)),
        closed => Err(format!("it closed {closed} of {CONNECTIONS} connections by itself").into()),
    }
}
