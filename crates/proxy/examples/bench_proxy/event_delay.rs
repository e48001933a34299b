//! Measures how late each event of a stream arrives: the upstream writes into it when it was sent.

use std::time::{Duration, Instant};

use http_body_util::BodyExt as _;
use ralph_testkit::bench::{BenchReport, BenchResult, SampleSeries};
use tokio::time::timeout;

use crate::client::{AnswerMode, ClientSetup};
use crate::setup::ProxyCandidate;
use crate::upstream::EVENTS;

pub(crate) const REVERSE: &str = "one event of a stream by a base URL";
pub(crate) const INTERCEPT: &str = "one event of a stream through a tunnel that is looked into";
const PASSES: usize = 3;
const TIMEOUT: Duration = Duration::from_mins(1);

pub(crate) async fn measure(
    report: &mut BenchReport,
    group: &'static str,
    all: &[ProxyCandidate<ClientSetup>],
    epoch: Instant,
) {
    let mut series: Vec<SampleSeries> = all.iter().map(|one| SampleSeries::new(group, one.name, "ms")).collect();
    for _ in 0..PASSES {
        for (one, series) in all.iter().zip(&mut series) {
            match &one.way {
                Ok(way) if series.missing.is_none() => match timeout(TIMEOUT, pass(way, epoch)).await {
                    Ok(Ok(late)) => series.values.extend(late),
                    Ok(Err(error)) => series.missing = Some(error.to_string()),
                    Err(_) => series.missing = Some("the stream did not end".to_owned()),
                },
                Ok(_) => (),
                Err(why) => series.missing = Some(why.clone()),
            }
        }
    }
    report.series.extend(series);
}

async fn pass(way: &ClientSetup, epoch: Instant) -> BenchResult<Vec<f64>> {
    let mut link = way.open().await?;
    link.ask(way).await?;
    let response = link.begin(way, AnswerMode::Stream).await?;
    if !response.status().is_success() {
        return Err(format!("it answers {}", response.status()).into());
    }
    let mut body = response.into_body();
    let (mut late, mut tail) = (Vec::new(), Vec::new());
    while let Some(frame) = body.frame().await {
        let now = epoch.elapsed().as_secs_f64() * 1000.0;
        if let Ok(piece) = frame?.into_data() {
            tail.extend_from_slice(&piece);
            late.extend(stamps(&mut tail).into_iter().map(|sent| now - sent));
        }
    }
    if late.len() == EVENTS { Ok(late) } else { Err(format!("{} of {EVENTS} events arrived", late.len()).into()) }
}

/// Removes the times at which events were sent, in ms, from the buffer; incomplete data stays.
fn stamps(tail: &mut Vec<u8>) -> Vec<f64> {
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(begin) = position(tail, from) {
        let Some(end) = position(tail, begin + 1) else {
            from = begin;
            break;
        };
        let digits = tail.get(begin + 1..end).and_then(|digits| std::str::from_utf8(digits).ok());
        found.extend(digits.and_then(|digits| digits.parse::<f64>().ok()).map(|nanos| nanos / 1e6));
        from = end + 1;
    }
    tail.drain(..from.min(tail.len()));
    found
}

fn position(tail: &[u8], from: usize) -> Option<usize> {
    tail.get(from..)?.iter().position(|byte| *byte == b'@').map(|at| from + at)
}
