//! Keeps a summary of a run in `summary.json`, so that listing runs does not fold their histories.
//!
//! The events are the truth. A summary counts only while the event file has the length it was made from; without a
//! summary only the listing takes longer.

use std::fs;
use std::io;

use ralph_core::run::{BadHistory, RunListing, RunState};
use serde::{Deserialize, Serialize};

use super::RunFolder;
use super::event_log::fold;
use crate::error::Error;

/// A file of any other format is rebuilt from the events.
const FORMAT: u32 = 1;

/// The content of `summary.json`.
#[derive(Debug, Serialize, Deserialize)]
struct SummaryFile {
    format: u32,
    /// The length of the event file, up to the end of its last whole line.
    events_bytes: u64,
    last_seq: u64,
    listing: RunListing,
}

/// Builds the listing of a run from its events, and stores it if no process works on the run.
pub(super) fn refresh(folder: &RunFolder) -> Result<RunListing, Error> {
    let run = folder.id();
    let folded = fold(&folder.events_path(), &run)?;
    let (state, events_bytes) = folded.ok_or(Error::BadHistory { run, source: BadHistory::Empty })?;
    // Only under the lock: the process that works on a run writes the summary itself, through the same temporary file.
    if let Ok(_lock) = folder.lock() {
        write(folder, &state, events_bytes);
    }
    Ok(RunListing::of(&state))
}

/// Reads the summary of a run; `None` if there is none that matches its events.
pub(super) fn read_current(folder: &RunFolder) -> Option<RunListing> {
    let text = fs::read(folder.summary_path()).ok()?;
    let file: SummaryFile = serde_json::from_slice(&text).ok()?;
    // The event file is checked last: if it still has this length, nothing was added before the summary was read.
    let events_bytes = fs::metadata(folder.events_path()).ok()?.len();
    (file.format == FORMAT && file.events_bytes == events_bytes).then_some(file.listing)
}

/// Writes the summary of a run whose lock the caller holds. A failure is logged only: readers fold the events instead.
pub(super) fn write(folder: &RunFolder, state: &RunState, events_bytes: u64) {
    let file = SummaryFile { format: FORMAT, events_bytes, last_seq: state.last_seq, listing: RunListing::of(state) };
    if let Err(error) = replace(folder, &file) {
        tracing::debug!(run = state.id(), %error, "could not write the summary");
    }
}

/// Replaces the summary. Unlike [`super::write_unflushed`] this never creates the folder: a removed run stays removed.
fn replace(folder: &RunFolder, file: &SummaryFile) -> io::Result<()> {
    let path = folder.summary_path();
    let temporary = path.with_extension("json.new");
    fs::write(&temporary, serde_json::to_vec(file)?)?;
    fs::rename(&temporary, &path)
}
