//! Measures what the machine itself costs, without any of ralph's code.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use tokio::process::Command;

use crate::BenchResult;
use crate::figures::{FigureTable, percentile};

const TIMES: usize = 60;

/// About the size of an event.
const EVENT: [u8; 300] = [b'x'; 300];

pub(crate) async fn measure(table: &mut FigureTable) -> BenchResult<()> {
    for argv in [&["git", "--version"][..], &["sh", "-c", "true"]] {
        let mut times = Vec::new();
        for _ in 0..TIMES {
            let began = Instant::now();
            let mut command = Command::new(argv.first().copied().unwrap_or_default());
            command.args(argv.iter().skip(1)).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
            command.kill_on_drop(true).output().await?;
            times.push(ms(began));
        }
        add_percentiles(table, &format!("`{}`", argv.join(" ")), &times);
    }
    let folder = tempfile::tempdir()?;
    let mut flush = FlushProbe::new(folder.path())?;
    let times = (0..TIMES).map(|_| flush.time_append()).collect::<BenchResult<Vec<f64>>>()?;
    add_percentiles(table, "append 300 bytes and fdatasync", &times);
    let mut times = Vec::new();
    for at in 0..TIMES {
        let began = Instant::now();
        File::create(folder.path().join(format!("created-{at}")))?.write_all(&EVENT)?;
        times.push(ms(began));
    }
    add_percentiles(table, "create a file", &times);
    Ok(())
}

fn add_percentiles(table: &mut FigureTable, name: &str, times: &[f64]) {
    table.add(format!("{name}, p50"), percentile(times, 50), "ms");
    table.add(format!("{name}, p90"), percentile(times, 90), "ms");
}

pub(crate) fn ms(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1000.0
}

/// A file that is appended to and flushed, like an event file.
#[derive(Debug)]
pub(crate) struct FlushProbe(File);

impl FlushProbe {
    pub(crate) fn new(folder: &Path) -> BenchResult<Self> {
        Ok(Self(File::create(folder.join("flushed"))?))
    }

    /// Returns the time of one append, in ms.
    pub(crate) fn time_append(&mut self) -> BenchResult<f64> {
        let began = Instant::now();
        self.0.write_all(&EVENT)?;
        self.0.sync_data()?;
        Ok(ms(began))
    }
}

/// Runs the no-op command without ralph's code around it and returns its time, in ms.
pub(crate) fn bare_command() -> BenchResult<f64> {
    let began = Instant::now();
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "true"]).stdin(Stdio::null()).output()?;
    Ok(ms(began))
}
