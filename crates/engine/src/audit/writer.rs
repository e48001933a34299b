//! Writes the audit log of a run.
//!
//! Every record is one `write` at once: a process that is killed loses no record. A thread of the log flushes to disk
//! within a second, so that the proxy never waits for a disk and a power cut costs a second at most.

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
use ralph_proxy::egress_events::EgressEvent;
use ralph_proxy::sent_bytes_alarm::OutflowMeter;

use super::call_log::ModelCallLog;
use super::engine_calls::{EngineCallResult, EngineCallTarget};
use super::event_to_record::{now, record};
use super::refusal_events::DenialCounter;
use crate::error::{Error, file_error};
use crate::store::RunFolder;

/// How long a written record may wait for the flush.
const FLUSH_INTERVAL: Duration = Duration::from_millis(500);
/// How often the counts of skipped records are written.
const SKIPPED_REPORT_INTERVAL: Duration = Duration::from_mins(1);
/// How long opening waits for another owner that is just closing the log.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);

/// The logs this process has open: all sandboxes of a run write into one.
static OPEN_LOGS: Mutex<BTreeMap<PathBuf, Weak<AuditLog>>> = Mutex::new(BTreeMap::new());

/// The audit file of one run, open for writing.
#[derive(Debug)]
pub struct AuditLog {
    shared: Arc<AuditLogShared>,
    calls: ModelCallLog,
    redactor: Redactor,
    /// Bytes sent out before this process.
    prior_outflow: u64,
    outflow: OnceLock<OutflowMeter>,
    flusher: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct AuditLogShared {
    path: PathBuf,
    state: Mutex<AuditLogState>,
    /// Notified after a write and on close.
    wake: Condvar,
}

#[derive(Debug)]
struct AuditLogState {
    file: File,
    /// Length of the file up to the end of its last record.
    length: u64,
    /// The last write failed, possibly after writing a part of the line.
    partial_write: bool,
    chain: AuditChain,
    rate_cap: AuditRecordCaps,
    denials: DenialCounter,
    /// Refusals that will become events.
    events: Vec<Event>,
    /// Records that could not be written, and the last error.
    lost: u64,
    last_error: Option<String>,
    dirty: bool,
    closing: bool,
}

impl AuditLog {
    /// Opens the audit log of a run and continues its chain. Callers that open it again while it is open share it.
    ///
    /// A line that a crash left half-written stays in the file, followed by a record that says so.
    pub fn open(folder: &RunFolder, redactor: Redactor) -> Result<Arc<Self>, Error> {
        let path = super::path(folder);
        let mut open = OPEN_LOGS.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|_, audit_log| audit_log.strong_count() > 0);
        if let Some(audit_log) = open.get(&path).and_then(Weak::upgrade) {
            return Ok(audit_log);
        }
        let file = OpenOptions::new()
            .create(true)
            .read(true)
            .append(true)
            .mode(0o600)
            .open(&path)
            .map_err(file_error("open", &path))?;
        lock(&file, &path, folder)?;
        let (state, left) = AuditLogState::load(file, &path, folder, &redactor)?;
        let calls = ModelCallLog::open(folder)?;
        let shared = Arc::new(AuditLogShared { path: path.clone(), state: Mutex::new(state), wake: Condvar::new() });
        let flushing = shared.clone();
        let flusher = std::thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || flushing.flush_loop())
            .map_err(self::file_error("start the thread that flushes", &path))?;
        let outflow = OnceLock::new();
        let audit_log =
            Arc::new(Self { shared, calls, redactor, prior_outflow: left, outflow, flusher: Some(flusher) });
        open.insert(path, Arc::downgrade(&audit_log));
        Ok(audit_log)
    }

    /// Writes an egress event of a sandbox. Never waits for the disk.
    pub fn write(&self, sandbox: &str, event: &EgressEvent) {
        self.calls.observe(event, &self.redactor);
        self.write_event(sandbox, event);
    }

    fn write_event(&self, sandbox: &str, egress_event: &EgressEvent) {
        let record = record(sandbox, egress_event, &self.redactor);
        let mut state = self.shared.lock_state();
        let event = state.denials.observe(egress_event);
        state.events.extend(event);
        state.write_or_count(record);
        drop(state);
        self.shared.wake.notify_one();
    }

    /// Records that a call is about to be sent, and returns once it is on disk: concurrent calls share one flush. The
    /// error says why it could not be written.
    pub async fn persist_call(audit_log: &Arc<Self>, sandbox: &str, calling: EgressEvent) -> Result<(), String> {
        let written = audit_log.calls.persist_call(&calling, &audit_log.redactor)?;
        audit_log.write_event(sandbox, &calling);
        let flushing = Arc::clone(audit_log);
        let flushed = tokio::task::spawn_blocking(move || flushing.calls.flush_to(written)).await;
        flushed.map_err(|error| error.to_string())?
    }

    /// Records that the engine itself is about to call a model, with the call's worst-case cost.
    pub fn engine_call_started(&self, own: &EngineCallTarget, model: &str, usage: TokenUsage, cost: MicroUsd) {
        self.write_record(own.start_record(model, usage, cost, &self.redactor));
    }

    /// Records how an engine call ended.
    pub fn engine_call_ended(&self, own: &EngineCallTarget, ended: &EngineCallResult<'_>) {
        self.write_record(own.end_record(ended, &self.redactor));
    }

    fn write_record(&self, record: AuditRecord) {
        self.shared.lock_state().write_or_count(record);
        self.shared.wake.notify_one();
    }

    /// Records that the listeners of a sandbox were closed.
    pub fn record_closed(&self, sandbox: &str) {
        let record = AuditRecord {
            kind: AuditRecordKind::Closed,
            at: now(),
            sandbox: sandbox.to_owned(),
            ..AuditRecord::default()
        };
        self.write_record(record);
    }

    /// Returns the outflow meter that all sandboxes of the run share, starting with what the file counts. The first
    /// sandbox with a limit sets it.
    pub fn outflow(&self, wanted: &OutflowMeter) -> OutflowMeter {
        match wanted.limit() {
            Some(limit) => self.outflow.get_or_init(|| OutflowMeter::new(Some(limit), self.prior_outflow)).clone(),
            None => wanted.clone(),
        }
    }

    /// Returns the log of the agents' model calls.
    pub fn calls(&self) -> &ModelCallLog {
        &self.calls
    }

    /// Returns the refusals and alarms that become events, each once.
    pub fn take_denial_events(&self) -> Vec<Event> {
        std::mem::take(&mut self.shared.lock_state().events)
    }

    /// Returns the last write error since the previous call.
    pub fn take_error(&self) -> Option<String> {
        self.shared.lock_state().last_error.take()
    }

    /// Writes the counts of skipped records, flushes, and returns the head of the chain: that much may be anchored.
    pub fn flush_and_head(&self) -> Result<AuditHead, Error> {
        let mut state = self.shared.lock_state();
        state.write_skipped();
        state.dirty = false;
        let head = state.chain.head().clone();
        let path = &self.shared.path;
        let file = state.file.try_clone().map_err(self::file_error("flush", path))?;
        drop(state);
        file.sync_data().map_err(self::file_error("flush", path))?;
        Ok(head)
    }
}

impl Drop for AuditLog {
    fn drop(&mut self) {
        let mut state = self.shared.lock_state();
        state.write_skipped();
        state.closing = true;
        drop(state);
        self.shared.wake.notify_one();
        if let Some(flusher) = self.flusher.take() {
            // The thread ends only by itself.
            let _ = flusher.join();
        }
    }
}

impl AuditLogShared {
    fn lock_state(&self) -> MutexGuard<'_, AuditLogState> {
        // A panic in between leaves whole lines, or a length to truncate to.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Flushes in batches until the log is closed.
    fn flush_loop(&self) {
        let mut reported_at = Instant::now();
        let mut state = self.lock_state();
        loop {
            let idle = |state: &mut AuditLogState| !state.dirty && !state.closing && !state.rate_cap.has_unreported();
            state = self.wake.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner);
            let batch = self.wake.wait_timeout_while(state, FLUSH_INTERVAL, |state| !state.closing);
            state = batch.unwrap_or_else(PoisonError::into_inner).0;
            if reported_at.elapsed() >= SKIPPED_REPORT_INTERVAL {
                reported_at = Instant::now();
                state.write_skipped();
            }
            let closing = state.closing;
            if std::mem::take(&mut state.dirty) {
                // Release the lock during the flush.
                let file = state.file.try_clone();
                drop(state);
                let flushed = file.and_then(|file| file.sync_data());
                state = self.lock_state();
                if let Err(error) = flushed {
                    state.last_error = Some(format!("the audit log could not be flushed: {error}"));
                }
            }
            if closing {
                return;
            }
        }
    }
}

impl AuditLogState {
    /// Reads the file and marks trailing bytes that are no record. Also returns how many bytes were sent out before.
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
        let mut state = Self {
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
                Some(_) => "the bytes before this record are not a record: a crash or a full disk cut a line off",
                None => "the newline of the previous line was missing",
            };
            let at = now();
            let marker = state.chain.damaged_line(damage.as_ref(), at, why);
            let newline = if ended { "" } else { "\n" };
            state.append(newline, &marker, at).map_err(self::file_error("append to", path))?;
        }
        Ok((state, left))
    }

    /// Writes a record, unless the cap for its kind is reached; then only counts it. Records that cannot be written
    /// are counted too, and the next record that can be written reports the count.
    fn write_or_count(&mut self, record: AuditRecord) {
        if !self.rate_cap.admit(&record) {
            return;
        }
        if self.lost > 0 {
            let reason = "records that could not be written".to_owned();
            let lost = AuditRecord {
                kind: AuditRecordKind::Skipped,
                at: now(),
                count: Some(self.lost),
                reason: Some(reason),
                ..AuditRecord::default()
            };
            if self.try_write(lost).is_ok() {
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

    /// Writes the counts of records skipped since the last time.
    fn write_skipped(&mut self) {
        for record in self.rate_cap.take_skipped_records() {
            self.write_or_count(AuditRecord { at: now(), ..record });
        }
    }

    /// Appends one line; the chain advances only when the whole line is in the file.
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

    /// Removes a partially written line, so that the next one begins a line.
    fn truncate_partial(&mut self) -> io::Result<()> {
        if self.partial_write {
            self.file.set_len(self.length)?;
            self.partial_write = false;
        }
        Ok(())
    }
}

/// Locks the file for this process: two writers would break the chain.
fn lock(file: &File, path: &Path, folder: &RunFolder) -> Result<(), Error> {
    let deadline = Instant::now() + LOCK_TIMEOUT;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(error)) => return Err(self::file_error("lock", path)(error)),
            // The previous owner may be about to release it.
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(5)),
            Err(TryLockError::WouldBlock) => return Err(Error::Locked { run: folder.id() }),
        }
    }
}

#[cfg(test)]
mod tests;
