//! The chain: every line names the hash of the line before.

use jiff::Timestamp;
use serde::Serialize;

use super::flood::Flood;
use super::record::{FORMAT, Kind, Record};
use crate::hash::{Hasher, sha256};

/// How far a file goes: all of it hangs on this hash.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Head {
    /// How many records there are.
    pub lines: u64,
    /// The hash of the last line; of the run's id while there is none.
    pub hash: String,
}

/// Returns what the first line of a run's file names as the hash before it.
pub fn genesis(run: &str) -> String {
    sha256(run.as_bytes())
}

/// The end of a file: what the next line continues.
#[derive(Debug, Clone)]
pub struct Chain {
    head: Head,
    at: Timestamp,
    /// The last line, hashed so far.
    last: Hasher,
}

/// Bytes behind the last record that are none, from the newline before them to the one after them.
#[derive(Debug, Clone)]
pub struct Damage {
    /// Of the last record's line and all of it.
    hash: Hasher,
    bytes: u64,
}

impl Damage {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds a line that is no record, without its newline.
    pub(super) fn add(damage: Option<Self>, chain: &Chain, line: &[u8]) -> Self {
        let newline = u64::from(damage.is_some());
        let mut damage = damage.unwrap_or_else(|| Self { hash: chain.last.clone(), bytes: 0 });
        damage.hash.update(b"\n");
        damage.hash.update(line);
        damage.bytes += newline + line.len() as u64;
        damage
    }

    /// Returns what the `damaged` record after it names as the hash before it.
    pub(super) fn hash(&self) -> String {
        self.hash.clone().finish()
    }
}

impl Chain {
    /// Begins the file of a run.
    pub fn begin(run: &str) -> Self {
        let mut last = Hasher::default();
        last.update(run.as_bytes());
        Self { head: Head { lines: 0, hash: genesis(run) }, at: Timestamp::MIN, last }
    }

    pub fn head(&self) -> &Head {
        &self.head
    }

    /// Gives a record its place and returns its line, newline included. The chain goes on from there once
    /// [`Chain::follow`] is told that the line was written.
    pub fn line(&self, record: Record) -> String {
        self.line_after(record, self.head.hash.clone())
    }

    /// Returns the line of a `damaged` record. What it tells of is hashed together with the line before, so that it can
    /// no more be changed than a record.
    pub fn damaged(&self, damage: Option<&Damage>, at: Timestamp, reason: &str) -> String {
        let record = Record {
            kind: Kind::Damaged,
            at,
            reason: Some(reason.to_owned()),
            bytes: Some(damage.map_or(0, Damage::bytes)),
            ..Record::default()
        };
        self.line_after(record, damage.map_or_else(|| self.head.hash.clone(), Damage::hash))
    }

    fn line_after(&self, mut record: Record, prev: String) -> String {
        record.seq = self.head.lines.saturating_add(1);
        record.format = (record.seq == 1).then_some(FORMAT);
        // The clock may be set back; the order of the file stays the order of time.
        record.at = record.at.max(self.at);
        record.prev = prev;
        let mut line = record.to_json();
        line.push('\n');
        line
    }

    /// Goes on behind a line that stands in the file as record `seq`, given without its newline.
    pub fn follow(&mut self, line: &[u8], seq: u64, at: Timestamp) {
        self.head = Head { lines: seq, hash: sha256(line) };
        self.at = self.at.max(at);
        self.last = Hasher::default();
        self.last.update(line);
    }
}

/// A file that is gone on with, read line by line.
///
/// It is not judged here: one that somebody changed goes on from its last record, and [`super::Verify`] tells.
#[derive(Debug)]
pub struct Open {
    chain: Chain,
    damage: Option<Damage>,
    ended: bool,
    flood: Flood,
    left: u64,
}

/// Where a file that is gone on with ends.
#[derive(Debug)]
pub struct Found {
    pub chain: Chain,
    /// What stands behind the last record and is none.
    pub damage: Option<Damage>,
    /// The file ends with a newline, or is empty.
    pub ended: bool,
    /// How many records of a kind there are.
    pub flood: Flood,
    /// How many bytes left by all of them.
    pub left: u64,
}

impl Open {
    pub fn new(run: &str) -> Self {
        Self { chain: Chain::begin(run), damage: None, ended: true, flood: Flood::default(), left: 0 }
    }

    /// Takes the next line, newline included; the last one may be without.
    pub fn line(&mut self, line: &[u8]) {
        let text = line.strip_suffix(b"\n");
        self.ended = text.is_some();
        let text = text.unwrap_or(line);
        // A line that lacks only its newline is whole when it continues the chain.
        let continues = |record: &Record| {
            let seq = self.chain.head.lines.checked_add(1);
            Some(record.seq) == seq && record.prev == self.chain.head.hash
        };
        let whole = |record: &Record| self.ended || continues(record);
        match Record::parse(text).filter(whole) {
            Some(record) => {
                self.damage = None;
                self.flood.stands(&record);
                self.left = self.left.saturating_add(record.left());
                self.chain.follow(text, record.seq, record.at);
            }
            None => self.damage = Some(Damage::add(self.damage.take(), &self.chain, text)),
        }
    }

    pub fn end(self) -> Found {
        let Self { chain, damage, ended, flood, left } = self;
        Found { chain, damage, ended, flood, left }
    }
}
