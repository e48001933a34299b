//! Appends events to a run's file: write and flush first, announce afterwards.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use jiff::{Timestamp, Unit};
use ralph_core::event::{Event, EventLine};
use ralph_core::run::RunState;

use super::{RunFolder, RunLock, summary_file};
use crate::error::{Error, file_error};

/// When an announcement is made, relative to the write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnnouncePhase {
    /// The event has happened but is not in the file yet.
    Before,
    /// The event is in the file and flushed.
    After,
}

/// Receives every event. It is called on the run's own path and must return at once.
pub trait EventObserver: Send + Sync {
    fn on_event(&self, moment: AnnouncePhase, line: &EventLine);
}

/// Ignores every event.
#[derive(Debug)]
pub struct SilentObserver;

impl EventObserver for SilentObserver {
    fn on_event(&self, _: AnnouncePhase, _: &EventLine) {}
}

/// The open event file of a run, with its state folded so far.
pub struct EventLog {
    file: File,
    path: PathBuf,
    folder: RunFolder,
    /// The length of the file.
    bytes: u64,
    /// The last event covered by the summary in the folder; 0 if unknown.
    summarized_seq: u64,
    state: Option<RunState>,
    observer: Box<dyn EventObserver>,
    run: String,
    clock: EventClock,
    // Held for as long as the run may be written.
    _lock: RunLock,
}

impl std::fmt::Debug for EventLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventLog").field("path", &self.path).finish_non_exhaustive()
    }
}

impl EventLog {
    /// Opens the event file for writing: takes the lock, folds the events, and truncates a line that a crash left
    /// half-written.
    pub fn open(folder: &RunFolder, announce: Box<dyn EventObserver>) -> Result<Self, Error> {
        let lock = folder.lock()?;
        let path = folder.events_path();
        let mut events = File::options()
            .create(true)
            .truncate(false)
            .read(true)
            .write(true)
            .open(&path)
            .map_err(file_error("open", &path))?;
        let whole = whole_length(&mut events).map_err(file_error("read", &path))?;
        events.set_len(whole).map_err(file_error("repair", &path))?;
        events.seek(SeekFrom::End(0)).map_err(file_error("read", &path))?;
        let run = folder.id();
        let state = fold(&path, &run)?.map(|(state, _)| state);
        Ok(Self {
            file: events,
            path,
            folder: folder.clone(),
            bytes: whole,
            summarized_seq: 0,
            state,
            observer: announce,
            run,
            clock: EventClock::start(),
            _lock: lock,
        })
    }

    /// Returns the state of a run that has begun.
    pub fn state(&self) -> &RunState {
        self.state.as_ref().expect("the first event is appended before anything asks for the state")
    }

    pub fn begun(&self) -> bool {
        self.state.is_some()
    }

    /// Returns the time since this process wrote its last event or opened the file.
    pub fn since_last(&self) -> Duration {
        self.clock.last.elapsed()
    }

    /// Appends an event, flushes it, folds it and only then announces it.
    pub fn append(&mut self, event: Event) -> Result<(), Error> {
        let now = Timestamp::now().round(Unit::Millisecond).unwrap_or_else(|_| Timestamp::now());
        let (seq, at) = match &self.state {
            // The clock may be set back; the order in the file stays the order of time.
            Some(state) => (state.last_seq + 1, now.max(state.last_at)),
            None => (1, now),
        };
        let wall_ms = self.state.as_ref().map(|state| at.as_millisecond() - state.last_at.as_millisecond());
        let passed_ms = wall_ms.and_then(|wall_ms| self.clock.elapsed_correction(u64::try_from(wall_ms).unwrap_or(0)));
        let line = EventLine { seq, at, passed_ms, event };
        self.observer.on_event(AnnouncePhase::Before, &line);
        let mut text = line.to_json();
        text.push('\n');
        self.file.write_all(text.as_bytes()).map_err(file_error("append to", &self.path))?;
        self.file.sync_data().map_err(file_error("flush", &self.path))?;
        let bad = |source| Error::BadHistory { run: self.run.clone(), source };
        self.clock.add_elapsed(self.state.as_ref().map_or(0, |state| state.elapsed_ms(&line)));
        let status_before = self.state.as_ref().map(|state| state.status.clone());
        match &mut self.state {
            Some(state) => state.apply(&line).map_err(bad)?,
            None => self.state = Some(RunState::begin(line.clone()).map_err(bad)?),
        }
        // After the fold: a summary never covers an event that does not fit the history.
        self.bytes += text.len() as u64;
        let status_changed = self.state.as_ref().map(|state| &state.status) != status_before.as_ref();
        if status_changed || matches!(line.event, Event::IterationFinished { .. }) {
            self.write_summary();
        }
        self.observer.on_event(AnnouncePhase::After, &line);
        Ok(())
    }

    /// Writes the summary shown in lists, unless it is current.
    fn write_summary(&mut self) {
        if let Some(state) = self.state.as_ref().filter(|state| state.last_seq != self.summarized_seq) {
            summary_file::write(&self.folder, state, self.bytes);
            self.summarized_seq = state.last_seq;
        }
    }
}

impl Drop for EventLog {
    /// The lock is still held here, so no other process writes the summary at the same time.
    fn drop(&mut self) {
        self.write_summary();
    }
}

/// Measures elapsed time while this process writes events, by a monotonic clock.
#[derive(Debug)]
struct EventClock {
    began: Instant,
    last: Instant,
    /// The sum of the elapsed times of this process's lines.
    counted_ms: u64,
}

impl EventClock {
    fn start() -> Self {
        let now = Instant::now();
        Self { began: now, last: now, counted_ms: 0 }
    }

    /// Returns the elapsed time a line must record where the wall clock would be wrong.
    fn elapsed_correction(&self, wall_ms: u64) -> Option<u64> {
        let real = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        correction(real.saturating_sub(self.counted_ms), wall_ms)
    }

    fn add_elapsed(&mut self, passed_ms: u64) {
        self.counted_ms = self.counted_ms.saturating_add(passed_ms);
        self.last = Instant::now();
    }
}

/// How far the wall clock may be off before a line records the elapsed time; a second of a budget does not matter.
const DRIFT_MS: u64 = 1000;

fn correction(due: u64, wall_ms: u64) -> Option<u64> {
    (due.abs_diff(wall_ms) > DRIFT_MS).then_some(due)
}

fn whole_length(events: &mut File) -> std::io::Result<u64> {
    let length = events.seek(SeekFrom::End(0))?;
    let mut end = length;
    let mut buffer = [0_u8; 4096];
    // Searches backwards for the last newline: only a crash in the middle of a write leaves bytes after it.
    while end > 0 {
        let start = end.saturating_sub(buffer.len() as u64);
        let size = usize::try_from(end - start).unwrap_or(buffer.len());
        events.seek(SeekFrom::Start(start))?;
        std::io::Read::read_exact(events, &mut buffer[..size])?;
        if let Some(at) = buffer[..size].iter().rposition(|byte| *byte == b'\n') {
            return Ok(start + at as u64 + 1);
        }
        end = start;
    }
    Ok(0)
}

/// Reads all whole lines of an event file and ignores a half-written last line.
pub fn read_events(path: &Path, run: &str) -> Result<Vec<EventLine>, Error> {
    let mut lines = Vec::new();
    let mut follow = EventLogReader::new(path, run);
    while let Some(line) = follow.next()? {
        lines.push(line);
    }
    Ok(lines)
}

/// Folds an event file line by line, so that a long history takes time but no memory, and returns how many bytes its
/// whole lines take; `None` while it has no event.
pub(super) fn fold(path: &Path, run: &str) -> Result<Option<(RunState, u64)>, Error> {
    let bad = |source| Error::BadHistory { run: run.to_owned(), source };
    let mut follow = EventLogReader::new(path, run);
    let Some(first) = follow.next()? else { return Ok(None) };
    let mut state = RunState::begin(first).map_err(bad)?;
    while let Some(line) = follow.next()? {
        state.apply(&line).map_err(bad)?;
    }
    Ok(Some((state, follow.bytes)))
}

/// Reads an event file line by line and can continue when more is appended.
#[derive(Debug)]
pub struct EventLogReader {
    path: PathBuf,
    run: String,
    reader: Option<BufReader<File>>,
    partial: Vec<u8>,
    number: u64,
    /// The size of the whole lines so far.
    bytes: u64,
}

impl EventLogReader {
    pub fn new(path: &Path, run: &str) -> Self {
        Self { path: path.to_owned(), run: run.to_owned(), reader: None, partial: Vec::new(), number: 0, bytes: 0 }
    }

    /// Returns the next whole line, or `None` when there is none yet.
    #[expect(clippy::should_implement_trait, reason = "an iterator that ends and then goes on is not an iterator")]
    pub fn next(&mut self) -> Result<Option<EventLine>, Error> {
        let reader = match &mut self.reader {
            Some(reader) => reader,
            None => match File::open(&self.path) {
                Ok(opened) => self.reader.insert(BufReader::with_capacity(1 << 16, opened)),
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(file_error("open", &self.path)(error)),
            },
        };
        reader.read_until(b'\n', &mut self.partial).map_err(file_error("read", &self.path))?;
        if self.partial.last() != Some(&b'\n') {
            return Ok(None);
        }
        self.number += 1;
        self.bytes += self.partial.len() as u64;
        let text = String::from_utf8_lossy(&self.partial);
        let line = EventLine::parse(&text).map_err(|source| Error::BadEvent {
            run: self.run.clone(),
            number: self.number,
            source,
        })?;
        self.partial.clear();
        Ok(Some(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_change_does_not_distort_elapsed_time() {
        for (due, wall_ms, want) in [
            (0, 0, None),
            (5_000, 5_400, None),
            // Set forward by a day, or the previous line is from another process.
            (5_000, 86_405_000, Some(5_000)),
            (0, 86_400_000, Some(0)),
            // Set back: the wall clock stands still and the elapsed time adds up.
            (900, 0, None),
            (1_001, 0, Some(1_001)),
        ] {
            assert_eq!(correction(due, wall_ms), want, "{due} {wall_ms}");
        }
    }
}
