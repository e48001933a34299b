//! The audit file while it is written.
//!
//! Every record is one `write` at once: a process that is killed loses nothing it was told. A thread of the book's own
//! flushes to the disk within a second, so that nobody at the doors waits for a disk and a power cut costs a second.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ralph_core::audit::{
    AuditChain, AuditFileEnd, AuditHead, AuditRecord, AuditRecordCaps, AuditRecordKind, AuditScanner,
};
use ralph_core::event::Event;
use ralph_core::money::MicroUsd;
use ralph_core::price::TokenUsage;
use ralph_core::redact::Redactor;
use ralph_proxy::observer::EgressEvent;
use ralph_proxy::outflow::OutflowMeter;

use super::call_log::ModelCallLog;
use super::convert::{now, record};
use super::denials::DenialCounter;
use super::engine_calls::{EngineCallResult, EngineCallTarget};
use crate::error::{Error, file_error};
use crate::store::RunFolder;

/// How long what was written may wait for the disk.
const FLUSH_INTERVAL: Duration = Duration::from_millis(500);
/// How often it is told what was only counted.
const SKIPPED_REPORT_INTERVAL: Duration = Duration::from_mins(1);
/// How long a book waits for one that is just being closed.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// The books this process has open: all sandboxes of a run write into one.
static OPEN_LOGS: Mutex<BTreeMap<PathBuf, Weak<AuditLog>>> = Mutex::new(BTreeMap::new());

/// The audit file of one run, open for writing.
#[derive(Debug)]
pub struct AuditLog {
    shared: Arc<AuditLogShared>,
    calls: ModelCallLog,
    redactor: Redactor,
    /// How much had left before this process.
    prior_outflow: u64,
    outflow: OnceLock<OutflowMeter>,
    flusher: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct AuditLogShared {
    path: PathBuf,
    state: Mutex<AuditLogState>,
    /// Rung when something was written, and at the end.
    wake: Condvar,
}

#[derive(Debug)]
struct AuditLogState {
    file: File,
    /// How long the file is, up to the end of its last record.
    length: u64,
    /// The last write failed, and perhaps not before it had begun.
    partial_write: bool,
    chain: AuditChain,
    rate_cap: AuditRecordCaps,
    denials: DenialCounter,
    /// Refusals that are to become events.
    events: Vec<Event>,
    /// Records that could not be written, and why the last could not.
    lost: u64,
    last_error: Option<String>,
    dirty: bool,
    closing: bool,
}

impl AuditLog {
    /// Opens the audit file of a run and goes on with its chain. Whoever asks while it is open gets the same book.
    ///
    /// A line that a crash left half-written stays in the file, followed by a record that says so.
    pub fn open(folder: &RunFolder, redactor: Redactor) -> Result<Arc<Self>, Error> {
        let path = super::path(folder);
        let mut open = OPEN_LOGS.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, book| book.strong_count() > 0);
        if let Some(book) = open.get(&path).and_then(Weak::upgrade) {
            return Ok(book);
        }
        let file = OpenOptions::new()
            .create(true)
            .read(true)
            .append(true)
            .mode(0o600)
            .open(&path)
            .map_err(file_error("open", &path))?;
        lock(&file, &path, folder)?;
        let (pages, left) = AuditLogState::load(file, &path, folder, &redactor)?;
        let calls = ModelCallLog::open(folder)?;
        let shared = Arc::new(AuditLogShared { path: path.clone(), state: Mutex::new(pages), wake: Condvar::new() });
        let flushing = shared.clone();
        let flusher = std::thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || flushing.flush_loop())
            .map_err(self::file_error("start the thread that flushes", &path))?;
        let outflow = OnceLock::new();
        let book = Arc::new(Self { shared, calls, redactor, prior_outflow: left, outflow, flusher: Some(flusher) });
        open.insert(path, Arc::downgrade(&book));
        Ok(book)
    }

    /// Writes down what the way out of a sandbox told. It never waits for the disk.
    pub fn write(&self, sandbox: &str, told: &EgressEvent) {
        self.calls.observe(told, &self.redactor);
        self.write_event(sandbox, told);
    }

    fn write_event(&self, sandbox: &str, told: &EgressEvent) {
        let record = record(sandbox, told, &self.redactor);
        let mut pages = self.shared.lock_state();
        let event = pages.denials.observe(told);
        pages.events.extend(event);
        pages.write_or_count(record);
        drop(pages);
        self.shared.wake.notify_one();
    }

    /// Writes down that a call is about to be dialled, and returns when the disk has it: calls that come at the same time
    /// share one flush. The error says why it could not be written.
    pub async fn persist_call(book: &Arc<Self>, sandbox: &str, calling: EgressEvent) -> Result<(), String> {
        let written = book.calls.persist_call(&calling, &book.redactor)?;
        book.write_event(sandbox, &calling);
        let flushing = Arc::clone(book);
        let flushed = tokio::task::spawn_blocking(move || flushing.calls.flush_to(written)).await;
        flushed.map_err(|error| error.to_string())?
    }

    /// Writes down that the engine itself is about to call a model, which may cost so much.
    pub fn engine_call_started(&self, own: &EngineCallTarget, model: &str, usage: TokenUsage, cost: MicroUsd) {
        self.write_record(own.start_record(model, usage, cost, &self.redactor));
    }

    /// Writes down how a call of the engine's own ended.
    pub fn engine_call_ended(&self, own: &EngineCallTarget, ended: &EngineCallResult<'_>) {
        self.write_record(own.end_record(ended, &self.redactor));
    }

    fn write_record(&self, record: AuditRecord) {
        self.shared.lock_state().write_or_count(record);
        self.shared.wake.notify_one();
    }

    /// Writes down that the doors of a sandbox were closed.
    pub fn record_closed(&self, sandbox: &str) {
        let record = AuditRecord {
            kind: AuditRecordKind::Closed,
            at: now(),
            sandbox: sandbox.to_owned(),
            ..AuditRecord::default()
        };
        self.write_record(record);
    }

    /// Returns the count that all sandboxes of the run share, beginning with what stands in the file. The first of them
    /// that has a limit sets it.
    pub fn outflow(&self, wanted: &OutflowMeter) -> OutflowMeter {
        match wanted.limit() {
            Some(limit) => self.outflow.get_or_init(|| OutflowMeter::new(Some(limit), self.prior_outflow)).clone(),
            None => wanted.clone(),
        }
    }

    /// Returns what agents asked of models.
    pub fn calls(&self) -> &ModelCallLog {
        &self.calls
    }

    /// Returns the refusals and alarms that are worth an event and were not taken yet.
    pub fn take_denial_events(&self) -> Vec<Event> {
        std::mem::take(&mut self.shared.lock_state().events)
    }

    /// Returns why something could not be written since this was last asked.
    pub fn take_error(&self) -> Option<String> {
        self.shared.lock_state().last_error.take()
    }

    /// Tells what was only counted, flushes all of it, and returns how far the file goes: that much may be anchored.
    pub fn flush_and_head(&self) -> Result<AuditHead, Error> {
        let mut pages = self.shared.lock_state();
        pages.write_skipped();
        pages.dirty = false;
        let head = pages.chain.head().clone();
        let path = &self.shared.path;
        let file = pages.file.try_clone().map_err(self::file_error("flush", path))?;
        drop(pages);
        file.sync_data().map_err(self::file_error("flush", path))?;
        Ok(head)
    }
}

impl Drop for AuditLog {
    fn drop(&mut self) {
        let mut pages = self.shared.lock_state();
        pages.write_skipped();
        pages.closing = true;
        drop(pages);
        self.shared.wake.notify_one();
        if let Some(flusher) = self.flusher.take() {
            // It only ever ends by itself.
            let _ = flusher.join();
        }
    }
}

impl AuditLogShared {
    fn lock_state(&self) -> MutexGuard<'_, AuditLogState> {
        // A panic in between leaves whole lines behind, or a length to go back to.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Flushes what was written, in batches, until the book is closed.
    fn flush_loop(&self) {
        let mut told = Instant::now();
        let mut pages = self.lock_state();
        loop {
            let idle = |pages: &mut AuditLogState| !pages.dirty && !pages.closing && !pages.rate_cap.has_unreported();
            pages = self.wake.wait_while(pages, idle).unwrap_or_else(PoisonError::into_inner);
            let batch = self.wake.wait_timeout_while(pages, FLUSH_INTERVAL, |pages| !pages.closing);
            pages = batch.unwrap_or_else(PoisonError::into_inner).0;
            if told.elapsed() >= SKIPPED_REPORT_INTERVAL {
                told = Instant::now();
                pages.write_skipped();
            }
            let closing = pages.closing;
            if std::mem::take(&mut pages.dirty) {
                // The lock is given up while the disk is waited for.
                let file = pages.file.try_clone();
                drop(pages);
                let flushed = file.and_then(|file| file.sync_data());
                pages = self.lock_state();
                if let Err(error) = flushed {
                    pages.last_error = Some(format!("it could not be flushed: {error}"));
                }
            }
            if closing {
                return;
            }
        }
    }
}

impl AuditLogState {
    /// Reads what is there and marks what is no record behind it. Returns how much had left by then, too.
    fn load(file: File, path: &Path, folder: &RunFolder, redactor: &Redactor) -> Result<(Self, u64), Error> {
        let reading = |error| self::file_error("read", path)(error);
        let mut open = AuditScanner::new(&folder.id());
        let mut reader = BufReader::with_capacity(1 << 16, &file);
        let (mut line, mut length) = (Vec::new(), 0);
        loop {
            line.clear();
            let read = reader.read_until(b'\n', &mut line).map_err(reading)?;
            if read == 0 {
                break;
            }
            length += read as u64;
            open.read_line(&line);
        }
        let AuditFileEnd { chain, damage, ended, caps: flood, bytes_sent: left } = open.finish();
        let mut pages = Self {
            file,
            length,
            partial_write: false,
            chain,
            rate_cap: flood,
            denials: DenialCounter::new(redactor.clone()),
            events: Vec::new(),
            lost: 0,
            last_error: None,
            dirty: false,
            closing: false,
        };
        if damage.is_some() || !ended {
            let why = match &damage {
                Some(_) => "the bytes before this record are none: a crash or a full disk cut a line off",
                None => "the newline of the line before was missing",
            };
            let at = now();
            let marker = pages.chain.damaged_line(damage.as_ref(), at, why);
            let newline = if ended { "" } else { "\n" };
            pages.append(newline, &marker, at).map_err(self::file_error("append to", path))?;
        }
        Ok((pages, left))
    }

    /// Writes a record, unless so many like it are there that it is only counted. What cannot be written is counted too,
    /// and told by the next record that can.
    fn write_or_count(&mut self, record: AuditRecord) {
        if !self.rate_cap.admit(&record) {
            return;
        }
        if self.lost > 0 {
            let reason = "records that could not be written".to_owned();
            let told = AuditRecord {
                kind: AuditRecordKind::Skipped,
                at: now(),
                count: Some(self.lost),
                reason: Some(reason),
                ..AuditRecord::default()
            };
            if self.try_write(told).is_ok() {
                self.lost = 0;
            }
        }
        if let Err(error) = self.try_write(record) {
            self.lost = self.lost.saturating_add(1);
            tracing::warn!(%error, "a record of the audit file could not be written");
            self.last_error = Some(error.to_string());
        }
    }

    fn try_write(&mut self, record: AuditRecord) -> io::Result<()> {
        let at = record.at;
        let line = self.chain.next_line(record);
        self.append("", &line, at)
    }

    /// Tells what was only counted since the last time.
    fn write_skipped(&mut self) {
        for record in self.rate_cap.take_skipped_records() {
            self.write_or_count(AuditRecord { at: now(), ..record });
        }
    }

    /// Appends one line; the chain goes on only when all of it stands in the file.
    fn append(&mut self, before: &str, line: &str, at: jiff::Timestamp) -> io::Result<()> {
        let bytes = [before, line].concat();
        self.truncate_partial()?;
        if let Err(error) = self.file.write_all(bytes.as_bytes()) {
            self.partial_write = true;
            self.truncate_partial()?;
            return Err(error);
        }
        self.length += bytes.len() as u64;
        let seq = self.chain.head().lines.saturating_add(1);
        self.chain.advance(line.strip_suffix('\n').unwrap_or(line).as_bytes(), seq, at);
        self.dirty = true;
        Ok(())
    }

    /// Removes what stands there of a line that could not be written whole, so that the next one begins a line.
    fn truncate_partial(&mut self) -> io::Result<()> {
        if self.partial_write {
            self.file.set_len(self.length)?;
            self.partial_write = false;
        }
        Ok(())
    }
}

/// One process at a time: two would tear the chain apart.
fn lock(file: &File, path: &Path, folder: &RunFolder) -> Result<(), Error> {
    let deadline = Instant::now() + LOCK_TIMEOUT;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(error)) => return Err(self::file_error("lock", path)(error)),
            // The last owner may be about to let go of it.
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(5)),
            Err(TryLockError::WouldBlock) => return Err(Error::Locked { run: folder.id() }),
        }
    }
}

#[cfg(test)]
mod tests;
