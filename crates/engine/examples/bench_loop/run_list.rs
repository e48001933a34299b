//! Measures listing ten thousand runs by their summaries, with whether a process works on each: what `ralph ls` does.

use std::fs;
use std::time::Instant;

use ralph_engine::store::RalphHome;

use crate::event_fold;
use crate::figures::{FigureTable, percentile};
use crate::machine_baseline::ms;
use crate::{BenchResult, LIST_MS};

const RUNS: u32 = 10_000;
const TIMES: usize = 7;

pub(crate) fn measure(table: &mut FigureTable) -> BenchResult<()> {
    let dir = tempfile::tempdir()?;
    let home = RalphHome::new(dir.path().join("state"), dir.path().join("config"));
    let history = event_fold::short_history();
    let mut summary = None;
    for number in 0..RUNS {
        let folder = home.run_folder(&format!("{number:012}"));
        fs::create_dir_all(folder.path())?;
        fs::write(folder.events_path(), &history)?;
        match &summary {
            Some(summary) => fs::write(folder.summary_path(), summary)?,
            None => {
                folder.listing()?;
                summary = Some(fs::read(folder.summary_path())?);
            }
        }
    }
    let mut times = Vec::new();
    for _ in 0..TIMES {
        let began = Instant::now();
        let list = home.list_runs()?;
        let live = list.runs.iter().filter(|run| run.folder.is_live()).count();
        times.push(ms(began));
        if (list.runs.len(), list.folded, live) != (RUNS as usize, 0, 0) {
            return Err(format!("{} runs were listed and {} folded", list.runs.len(), list.folded).into());
        }
    }
    table.add_with_target("list of 10 000 runs, p50", percentile(&times, 50), LIST_MS, "ms");
    table.add("list of 10 000 runs, the slowest", percentile(&times, 100), "ms");
    Ok(())
}
