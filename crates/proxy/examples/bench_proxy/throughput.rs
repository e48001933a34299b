//! Measures how many megabytes pass through a tunnel in a second: an upstream sends, a client reads.

use std::time::{Duration, Instant};

use ralph_testkit::bench::{BenchReport, BenchResult, SampleSeries};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::client::ClientPath;
use crate::setup::ProxyCandidate;

pub(crate) const GROUP: &str = "megabytes per second through a tunnel";
const TOTAL: usize = 256 << 20;
const BLOCK: usize = 256 << 10;
const TIMEOUT: Duration = Duration::from_mins(1);
const PASSES: usize = 5;

/// Sends blocks, once the client has asked for them.
pub(crate) async fn send_blocks(mut stream: TcpStream) {
    if stream.read_u8().await.is_err() {
        return;
    }
    let block = vec![b'x'; BLOCK];
    for _ in 0..TOTAL / BLOCK {
        if stream.write_all(&block).await.is_err() {
            return;
        }
    }
    stream.shutdown().await.ok();
}

pub(crate) async fn measure(report: &mut BenchReport, all: &[ProxyCandidate<ClientPath>]) {
    let mut series: Vec<SampleSeries> = all.iter().map(|one| SampleSeries::new(GROUP, one.name, "MB/s")).collect();
    for _ in 0..PASSES {
        for (one, series) in all.iter().zip(&mut series) {
            match &one.way {
                Ok(road) if series.missing.is_none() => match timeout(TIMEOUT, receive_all(road)).await {
                    Ok(Ok(speed)) => series.values.push(speed),
                    Ok(Err(error)) => series.missing = Some(error.to_string()),
                    Err(_) => series.missing = Some("it took too long".to_owned()),
                },
                Ok(_) => (),
                Err(why) => series.missing = Some(why.clone()),
            }
        }
    }
    report.series.extend(series);
}

async fn receive_all(road: &ClientPath) -> BenchResult<f64> {
    let mut stream = road.connect().await?;
    stream.write_all(b"g").await?;
    let began = Instant::now();
    let (mut taken, mut block) = (0, vec![0; BLOCK]);
    while taken < TOTAL {
        match stream.read(&mut block).await? {
            0 => return Err(format!("it ended after {taken} bytes").into()),
            n => taken += n,
        }
    }
    Ok(taken as f64 / 1e6 / began.elapsed().as_secs_f64())
}
