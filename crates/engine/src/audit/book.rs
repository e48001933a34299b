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

use ralph_core::audit::{Chain, Flood, Found, Head, Kind, Open, Record};
use ralph_core::event::Event;
use ralph_core::money::Micros;
use ralph_core::price::Usage;
use ralph_core::redact::Redactor;
use ralph_proxy::notice::Told;
use ralph_proxy::outflow::Outflow;

use super::calls::Calls;
use super::denials::Denials;
use super::own::{Ended, Own};
use super::told::{now, record};
use crate::error::{Error, file};
use crate::store::Folder;

/// How long what was written may wait for the disk.
const FLUSH: Duration = Duration::from_millis(500);
/// How often it is told what was only counted.
const TELL: Duration = Duration::from_mins(1);
/// How long a book waits for one that is just being closed.
const PATIENCE: Duration = Duration::from_secs(2);

/// The books this process has open: all sandboxes of a run write into one.
static OPEN: Mutex<BTreeMap<PathBuf, Weak<Book>>> = Mutex::new(BTreeMap::new());

/// The audit file of one run, open for writing.
#[derive(Debug)]
pub struct Book {
    shared: Arc<Shared>,
    calls: Calls,
    redactor: Redactor,
    /// How much had left before this process.
    left: u64,
    outflow: OnceLock<Outflow>,
    flusher: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    pages: Mutex<Pages>,
    /// Rung when something was written, and at the end.
    bell: Condvar,
}

#[derive(Debug)]
struct Pages {
    file: File,
    /// How long the file is, up to the end of its last record.
    length: u64,
    /// The last write failed, and perhaps not before it had begun.
    half: bool,
    chain: Chain,
    flood: Flood,
    denials: Denials,
    /// Refusals that are to become events.
    events: Vec<Event>,
    /// Records that could not be written, and why the last could not.
    lost: u64,
    trouble: Option<String>,
    dirty: bool,
    closing: bool,
}

impl Book {
    /// Opens the audit file of a run and goes on with its chain. Whoever asks while it is open gets the same book.
    ///
    /// A line that a crash left half-written stays in the file, followed by a record that says so.
    pub fn open(folder: &Folder, redactor: Redactor) -> Result<Arc<Self>, Error> {
        let path = super::path(folder);
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
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
            .map_err(file("open", &path))?;
        lock(&file, &path, folder)?;
        let (pages, left) = Pages::take_up(file, &path, folder, &redactor)?;
        let calls = Calls::open(folder)?;
        let shared = Arc::new(Shared { path: path.clone(), pages: Mutex::new(pages), bell: Condvar::new() });
        let flushing = shared.clone();
        let flusher = std::thread::Builder::new()
            .name("audit".to_owned())
            .spawn(move || flushing.flush())
            .map_err(self::file("start the thread that flushes", &path))?;
        let outflow = OnceLock::new();
        let book = Arc::new(Self { shared, calls, redactor, left, outflow, flusher: Some(flusher) });
        open.insert(path, Arc::downgrade(&book));
        Ok(book)
    }

    /// Writes down what the way out of a sandbox told. It never waits for the disk.
    pub fn write(&self, sandbox: &str, told: &Told) {
        self.calls.hear(told, &self.redactor);
        self.put(sandbox, told);
    }

    fn put(&self, sandbox: &str, told: &Told) {
        let record = record(sandbox, told, &self.redactor);
        let mut pages = self.shared.pages();
        let event = pages.denials.hear_all(told);
        pages.events.extend(event);
        pages.put(record);
        drop(pages);
        self.shared.bell.notify_one();
    }

    /// Writes down that a call is about to be dialled, and returns when the disk has it: calls that come at the same time
    /// share one flush. The error says why it could not be written.
    pub async fn keep(book: &Arc<Self>, sandbox: &str, calling: Told) -> Result<(), String> {
        let written = book.calls.keep(&calling, &book.redactor)?;
        book.put(sandbox, &calling);
        let flushing = Arc::clone(book);
        let flushed = tokio::task::spawn_blocking(move || flushing.calls.flush_to(written)).await;
        flushed.map_err(|error| error.to_string())?
    }

    /// Writes down that the engine itself is about to call a model, which may cost so much.
    pub fn calling(&self, own: &Own, model: &str, usage: Usage, cost: Micros) {
        self.note(own.calling(model, usage, cost, &self.redactor));
    }

    /// Writes down how a call of the engine's own ended.
    pub fn called(&self, own: &Own, ended: &Ended<'_>) {
        self.note(own.ended(ended, &self.redactor));
    }

    fn note(&self, record: Record) {
        self.shared.pages().put(record);
        self.shared.bell.notify_one();
    }

    /// Writes down that the doors of a sandbox were closed.
    pub fn close(&self, sandbox: &str) {
        let record = Record { kind: Kind::Closed, at: now(), sandbox: sandbox.to_owned(), ..Record::default() };
        self.note(record);
    }

    /// Returns the count that all sandboxes of the run share, beginning with what stands in the file. The first of them
    /// that has a limit sets it.
    pub fn outflow(&self, wanted: &Outflow) -> Outflow {
        match wanted.limit() {
            Some(limit) => self.outflow.get_or_init(|| Outflow::new(Some(limit), self.left)).clone(),
            None => wanted.clone(),
        }
    }

    /// Returns what agents asked of models.
    pub fn calls(&self) -> &Calls {
        &self.calls
    }

    /// Returns the refusals and alarms that are worth an event and were not taken yet.
    pub fn denied(&self) -> Vec<Event> {
        std::mem::take(&mut self.shared.pages().events)
    }

    /// Returns why something could not be written since this was last asked.
    pub fn trouble(&self) -> Option<String> {
        self.shared.pages().trouble.take()
    }

    /// Tells what was only counted, flushes all of it, and returns how far the file goes: that much may be anchored.
    pub fn settle(&self) -> Result<Head, Error> {
        let mut pages = self.shared.pages();
        pages.tell();
        pages.dirty = false;
        let head = pages.chain.head().clone();
        let path = &self.shared.path;
        let file = pages.file.try_clone().map_err(self::file("flush", path))?;
        drop(pages);
        file.sync_data().map_err(self::file("flush", path))?;
        Ok(head)
    }
}

impl Drop for Book {
    fn drop(&mut self) {
        let mut pages = self.shared.pages();
        pages.tell();
        pages.closing = true;
        drop(pages);
        self.shared.bell.notify_one();
        if let Some(flusher) = self.flusher.take() {
            // It only ever ends by itself.
            let _ = flusher.join();
        }
    }
}

impl Shared {
    fn pages(&self) -> MutexGuard<'_, Pages> {
        // A panic in between leaves whole lines behind, or a length to go back to.
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Flushes what was written, in batches, until the book is closed.
    fn flush(&self) {
        let mut told = Instant::now();
        let mut pages = self.pages();
        loop {
            let idle = |pages: &mut Pages| !pages.dirty && !pages.closing && !pages.flood.is_due();
            pages = self.bell.wait_while(pages, idle).unwrap_or_else(PoisonError::into_inner);
            let batch = self.bell.wait_timeout_while(pages, FLUSH, |pages| !pages.closing);
            pages = batch.unwrap_or_else(PoisonError::into_inner).0;
            if told.elapsed() >= TELL {
                told = Instant::now();
                pages.tell();
            }
            let closing = pages.closing;
            if std::mem::take(&mut pages.dirty) {
                // The lock is given up while the disk is waited for.
                let file = pages.file.try_clone();
                drop(pages);
                let flushed = file.and_then(|file| file.sync_data());
                pages = self.pages();
                if let Err(error) = flushed {
                    pages.trouble = Some(format!("it could not be flushed: {error}"));
                }
            }
            if closing {
                return;
            }
        }
    }
}

impl Pages {
    /// Reads what is there and marks what is no record behind it. Returns how much had left by then, too.
    fn take_up(file: File, path: &Path, folder: &Folder, redactor: &Redactor) -> Result<(Self, u64), Error> {
        let reading = |error| self::file("read", path)(error);
        let mut open = Open::new(&folder.id());
        let mut reader = BufReader::with_capacity(1 << 16, &file);
        let (mut line, mut length) = (Vec::new(), 0);
        loop {
            line.clear();
            let read = reader.read_until(b'\n', &mut line).map_err(reading)?;
            if read == 0 {
                break;
            }
            length += read as u64;
            open.line(&line);
        }
        let Found { chain, damage, ended, flood, left } = open.end();
        let mut pages = Self {
            file,
            length,
            half: false,
            chain,
            flood,
            denials: Denials::new(redactor.clone()),
            events: Vec::new(),
            lost: 0,
            trouble: None,
            dirty: false,
            closing: false,
        };
        if damage.is_some() || !ended {
            let why = match &damage {
                Some(_) => "the bytes before this record are none: a crash or a full disk cut a line off",
                None => "the newline of the line before was missing",
            };
            let at = now();
            let marker = pages.chain.damaged(damage.as_ref(), at, why);
            let newline = if ended { "" } else { "\n" };
            pages.append(newline, &marker, at).map_err(self::file("append to", path))?;
        }
        Ok((pages, left))
    }

    /// Writes a record, unless so many like it are there that it is only counted. What cannot be written is counted too,
    /// and told by the next record that can.
    fn put(&mut self, record: Record) {
        if !self.flood.admits(&record) {
            return;
        }
        if self.lost > 0 {
            let reason = "records that could not be written".to_owned();
            let told = Record {
                kind: Kind::Skipped,
                at: now(),
                count: Some(self.lost),
                reason: Some(reason),
                ..Record::default()
            };
            if self.try_put(told).is_ok() {
                self.lost = 0;
            }
        }
        if let Err(error) = self.try_put(record) {
            self.lost = self.lost.saturating_add(1);
            tracing::warn!(%error, "a record of the audit file could not be written");
            self.trouble = Some(error.to_string());
        }
    }

    fn try_put(&mut self, record: Record) -> io::Result<()> {
        let at = record.at;
        let line = self.chain.line(record);
        self.append("", &line, at)
    }

    /// Tells what was only counted since the last time.
    fn tell(&mut self) {
        for record in self.flood.tell() {
            self.put(Record { at: now(), ..record });
        }
    }

    /// Appends one line; the chain goes on only when all of it stands in the file.
    fn append(&mut self, before: &str, line: &str, at: jiff::Timestamp) -> io::Result<()> {
        let bytes = [before, line].concat();
        self.take_back()?;
        if let Err(error) = self.file.write_all(bytes.as_bytes()) {
            self.half = true;
            self.take_back()?;
            return Err(error);
        }
        self.length += bytes.len() as u64;
        let seq = self.chain.head().lines.saturating_add(1);
        self.chain.follow(line.strip_suffix('\n').unwrap_or(line).as_bytes(), seq, at);
        self.dirty = true;
        Ok(())
    }

    /// Removes what stands there of a line that could not be written whole, so that the next one begins a line.
    fn take_back(&mut self) -> io::Result<()> {
        if self.half {
            self.file.set_len(self.length)?;
            self.half = false;
        }
        Ok(())
    }
}

/// One process at a time: two would tear the chain apart.
fn lock(file: &File, path: &Path, folder: &Folder) -> Result<(), Error> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(()),
            Err(TryLockError::Error(error)) => return Err(self::file("lock", path)(error)),
            // The last owner may be about to let go of it.
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(5)),
            Err(TryLockError::WouldBlock) => return Err(Error::Locked { run: folder.id() }),
        }
    }
}

#[cfg(test)]
mod tests;
