//! The chain: every line names the hash of the line before.

use jiff::Timestamp;
use serde::Serialize;

use super::record::{AuditRecord, AuditRecordKind, FORMAT};
use super::record_cap::AuditRecordCaps;
use crate::hash::{Sha256Hasher, sha256};

/// How far a file goes: all of it hangs on this hash.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct AuditHead {
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
pub struct AuditChain {
    head: AuditHead,
    at: Timestamp,
    /// The last line, hashed so far.
    last: Sha256Hasher,
}

/// Bytes behind the last record that are none, from the newline before them to the one after them.
#[derive(Debug, Clone)]
pub struct AuditDamage {
    /// Of the last record's line and all of it.
    hash: Sha256Hasher,
    bytes: u64,
}

impl AuditDamage {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds a line that is no record, without its newline.
    pub(super) fn add(damage: Option<Self>, chain: &AuditChain, line: &[u8]) -> Self {
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

impl AuditChain {
    /// Begins the file of a run.
    pub fn begin(run: &str) -> Self {
        let mut last = Sha256Hasher::default();
        last.update(run.as_bytes());
        Self { head: AuditHead { lines: 0, hash: genesis(run) }, at: Timestamp::MIN, last }
    }

    pub fn head(&self) -> &AuditHead {
        &self.head
    }

    /// Gives a record its place and returns its line, newline included. The chain goes on from there once
    /// [`AuditChain::advance`] is told that the line was written.
    pub fn next_line(&self, record: AuditRecord) -> String {
        self.line_after(record, self.head.hash.clone())
    }

    /// Returns the line of a `damaged` record. What it tells of is hashed together with the line before, so that it can
    /// no more be changed than a record.
    pub fn damaged_line(&self, damage: Option<&AuditDamage>, at: Timestamp, reason: &str) -> String {
        let record = AuditRecord {
            kind: AuditRecordKind::Damaged,
            at,
            reason: Some(reason.to_owned()),
            bytes: Some(damage.map_or(0, AuditDamage::bytes)),
            ..AuditRecord::default()
        };
        self.line_after(record, damage.map_or_else(|| self.head.hash.clone(), AuditDamage::hash))
    }

    fn line_after(&self, mut record: AuditRecord, prev: String) -> String {
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
    pub fn advance(&mut self, line: &[u8], seq: u64, at: Timestamp) {
        self.head = AuditHead { lines: seq, hash: sha256(line) };
        self.at = self.at.max(at);
        self.last = Sha256Hasher::default();
        self.last.update(line);
    }
}

/// A file that is gone on with, read line by line.
///
/// It is not judged here: one that somebody changed goes on from its last record, and [`super::Verify`] tells.
#[derive(Debug)]
pub struct AuditScanner {
    chain: AuditChain,
    damage: Option<AuditDamage>,
    ended: bool,
    caps: AuditRecordCaps,
    bytes_sent: u64,
}

/// Where a file that is gone on with ends.
#[derive(Debug)]
pub struct AuditFileEnd {
    pub chain: AuditChain,
    /// What stands behind the last record and is none.
    pub damage: Option<AuditDamage>,
    /// The file ends with a newline, or is empty.
    pub ended: bool,
    /// How many records of a kind there are.
    pub caps: AuditRecordCaps,
    /// How many bytes left by all of them.
    pub bytes_sent: u64,
}

impl AuditScanner {
    pub fn new(run: &str) -> Self {
        Self {
            chain: AuditChain::begin(run),
            damage: None,
            ended: true,
            caps: AuditRecordCaps::default(),
            bytes_sent: 0,
        }
    }

    /// Takes the next line, newline included; the last one may be without.
    pub fn read_line(&mut self, line: &[u8]) {
        let text = line.strip_suffix(b"\n");
        self.ended = text.is_some();
        let text = text.unwrap_or(line);
        // A line that lacks only its newline is whole when it continues the chain.
        let continues = |record: &AuditRecord| {
            let seq = self.chain.head.lines.checked_add(1);
            Some(record.seq) == seq && record.prev == self.chain.head.hash
        };
        let whole = |record: &AuditRecord| self.ended || continues(record);
        match AuditRecord::parse(text).filter(whole) {
            Some(record) => {
                self.damage = None;
                self.caps.count_written(&record);
                self.bytes_sent = self.bytes_sent.saturating_add(record.unpaid_bytes_sent());
                self.chain.advance(text, record.seq, record.at);
            }
            None => self.damage = Some(AuditDamage::add(self.damage.take(), &self.chain, text)),
        }
    }

    pub fn finish(self) -> AuditFileEnd {
        let Self { chain, damage, ended, caps: flood, bytes_sent: left } = self;
        AuditFileEnd { chain, damage, ended, caps: flood, bytes_sent: left }
    }
}
