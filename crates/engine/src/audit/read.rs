//! Reading an audit file: to show it, while it grows, and to judge it.

use std::fs::File;
use std::io::{BufRead as _, BufReader, ErrorKind};
use std::path::{Path, PathBuf};

use ralph_core::audit::{Anchor, Fault, Head, Record, Report, Verify};
use ralph_core::event::Event;

use crate::error::{Error, file};
use crate::store::{Folder, Follow};

/// One line of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// As it stands there, without its newline.
    pub text: String,
    /// `None` for a line that is no record.
    pub record: Option<Record>,
}

/// Reads an audit file line by line and can go on when more is appended.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    opened: Option<BufReader<File>>,
    partial: Vec<u8>,
}

impl Reader {
    pub fn new(folder: &Folder) -> Self {
        Self { path: super::path(folder), opened: None, partial: Vec::new() }
    }

    /// Returns the next whole line, or `None` when there is none yet.
    #[expect(clippy::should_implement_trait, reason = "an iterator that ends and then goes on is not an iterator")]
    pub fn next(&mut self) -> Result<Option<Entry>, Error> {
        if self.opened.is_none() {
            self.opened = open(&self.path)?;
        }
        let Some(reader) = &mut self.opened else { return Ok(None) };
        reader.read_until(b'\n', &mut self.partial).map_err(file("read", &self.path))?;
        let Some(line) = self.partial.strip_suffix(b"\n") else { return Ok(None) };
        let entry = Entry { text: String::from_utf8_lossy(line).into_owned(), record: Record::parse(line) };
        self.partial.clear();
        Ok(Some(entry))
    }
}

/// Judges the audit file of a run by its own chain and by the anchors in the run's events.
pub fn verify(folder: &Folder) -> Result<Result<Report, Fault>, Error> {
    let mut verify = Verify::new(&folder.id(), anchors(folder)?);
    let path = super::path(folder);
    if let Some(mut reader) = open(&path)? {
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).map_err(file("read", &path))? > 0 && verify.line(&line) {
            line.clear();
        }
    }
    Ok(verify.end())
}

fn anchors(folder: &Folder) -> Result<Vec<Anchor>, Error> {
    let mut anchors = Vec::new();
    let mut follow = Follow::new(&folder.events_path(), &folder.id());
    while let Some(line) = follow.next()? {
        if let Event::AuditAnchored { lines, head } = line.event {
            anchors.push(Anchor { event: line.seq, head: Head { lines, hash: head } });
        }
    }
    Ok(anchors)
}

fn open(path: &Path) -> Result<Option<BufReader<File>>, Error> {
    match File::open(path) {
        Ok(opened) => Ok(Some(BufReader::with_capacity(1 << 16, opened))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(file("open", path)(error)),
    }
}
