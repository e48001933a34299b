//! Reads an audit log: to show it, also while it grows, and to verify it.

use std::fs::File;
use std::io::{BufRead as _, BufReader, ErrorKind};
use std::path::{Path, PathBuf};

use ralph_core::audit::{AuditAnchor, AuditFault, AuditHead, AuditRecord, AuditVerification, AuditVerifier};
use ralph_core::event::Event;

use crate::error::{Error, file_error};
use crate::store::{EventLogReader, RunFolder};

/// One line of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditLine {
    /// The line as it is in the file, without its newline.
    pub text: String,
    /// `None` for a line that is not a record.
    pub record: Option<AuditRecord>,
}

/// Reads an audit log line by line and can continue when more is appended.
#[derive(Debug)]
pub struct AuditReader {
    path: PathBuf,
    opened: Option<BufReader<File>>,
    partial: Vec<u8>,
}

impl AuditReader {
    pub fn new(folder: &RunFolder) -> Self {
        Self { path: super::path(folder), opened: None, partial: Vec::new() }
    }

    /// Returns the next whole line, or `None` when there is none yet.
    #[expect(clippy::should_implement_trait, reason = "an iterator that ends and then goes on is not an iterator")]
    pub fn next(&mut self) -> Result<Option<AuditLine>, Error> {
        if self.opened.is_none() {
            self.opened = open(&self.path)?;
        }
        let Some(reader) = &mut self.opened else { return Ok(None) };
        reader.read_until(b'\n', &mut self.partial).map_err(file_error("read", &self.path))?;
        let Some(line) = self.partial.strip_suffix(b"\n") else { return Ok(None) };
        let entry = AuditLine { text: String::from_utf8_lossy(line).into_owned(), record: AuditRecord::parse(line) };
        self.partial.clear();
        Ok(Some(entry))
    }
}

/// Verifies the audit log of a run by its own chain and by the anchors in the run's events.
pub fn verify(folder: &RunFolder) -> Result<Result<AuditVerification, AuditFault>, Error> {
    let mut verify = AuditVerifier::new(&folder.id(), anchors(folder)?);
    let path = super::path(folder);
    if let Some(mut reader) = open(&path)? {
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).map_err(file_error("read", &path))? > 0 && verify.read_line(&line) {
            line.clear();
        }
    }
    Ok(verify.finish())
}

fn anchors(folder: &RunFolder) -> Result<Vec<AuditAnchor>, Error> {
    let mut anchors = Vec::new();
    let mut follow = EventLogReader::new(&folder.events_path(), &folder.id());
    while let Some(line) = follow.next()? {
        if let Event::AuditAnchored { lines, head } = line.event {
            anchors.push(AuditAnchor { event: line.seq, head: AuditHead { lines, hash: head } });
        }
    }
    Ok(anchors)
}

fn open(path: &Path) -> Result<Option<BufReader<File>>, Error> {
    match File::open(path) {
        Ok(opened) => Ok(Some(BufReader::with_capacity(1 << 16, opened))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(file_error("open", path)(error)),
    }
}
