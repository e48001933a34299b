//! Measures how many calls pass in a second over reused connections, for each setup in turn.

use std::time::{Duration, Instant};

use ralph_testkit::bench::{BenchReport, BenchResult, SampleSeries};
use tokio::task::JoinSet;

use crate::client::ClientSetup;
use crate::setup::ProxyCandidate;

pub(crate) const REVERSE: &str = "calls per second by a base URL, 32 connections";
pub(crate) const PLAIN: &str = "plain calls per second in absolute form, 32 connections";
const CONNECTIONS: usize = 32;
const PASSES: usize = 9;

pub(crate) async fn measure(
    report: &mut BenchReport,
    group: &'static str,
    all: &[ProxyCandidate<ClientSetup>],
    length: Duration,
) {
    let mut series: Vec<SampleSeries> = all.iter().map(|one| SampleSeries::new(group, one.name, "/s")).collect();
    for _ in 0..PASSES {
        for (one, series) in all.iter().zip(&mut series) {
            match &one.way {
                Ok(way) if series.missing.is_none() => match pass(way, length).await {
                    Ok(rate) => series.values.push(rate),
                    Err(error) => {
                        series.values.clear();
                        series.missing = Some(format!("a call failed: {error}"));
                    }
                },
                Ok(_) => (),
                Err(why) => series.missing = Some(why.clone()),
            }
        }
    }
    report.series.extend(series);
}

async fn pass(way: &ClientSetup, length: Duration) -> BenchResult<f64> {
    let mut links = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut link = way.open().await?;
        link.ask(way).await?;
        links.push(link);
    }
    let began = Instant::now();
    let mut lanes = JoinSet::new();
    for mut link in links {
        let way = way.clone();
        lanes.spawn(async move {
            let mut calls = 0_u32;
            while began.elapsed() < length {
                link.ask(&way).await?;
                calls += 1;
            }
            BenchResult::Ok(calls)
        });
    }
    let mut calls = 0;
    while let Some(lane) = lanes.join_next().await {
        calls += lane??;
    }
    Ok(f64::from(calls) / began.elapsed().as_secs_f64())
}
