//! Builds the hash chain: every line contains the hash of the line before.

use jiff::Timestamp;
use serde::Serialize;

use super::record::{AuditRecord, AuditRecordKind, FORMAT};
use super::record_cap::AuditRecordCaps;
use crate::hash::{Sha256Hasher, sha256};

/// The head of a chain: its hash covers the whole file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct AuditHead {
    /// How many records there are.
    pub lines: u64,
    /// The hash of the last line; of the run's id while there is none.
    pub hash: String,
}

/// Returns the previous hash of the first line of a run's file.
pub fn genesis(run: &str) -> String {
    sha256(run.as_bytes())
}

/// The end of a file, from which the next line continues.
#[derive(Debug, Clone)]
pub struct AuditChain {
    head: AuditHead,
    at: Timestamp,
    /// The last line, hashed so far.
    last: Sha256Hasher,
}

/// Bytes after the last record that are not a record, from the newline before them to the one after them.
#[derive(Debug, Clone)]
pub struct AuditDamage {
    /// The hash over the last record's line and all of the damage.
    hash: Sha256Hasher,
    bytes: u64,
}

impl AuditDamage {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Adds a line that is not a record, without its newline.
    pub(super) fn add(damage: Option<Self>, chain: &AuditChain, line: &[u8]) -> Self {
        let newline = u64::from(damage.is_some());
        let mut damage = damage.unwrap_or_else(|| Self { hash: chain.last.clone(), bytes: 0 });
        damage.hash.update(b"\n");
        damage.hash.update(line);
        damage.bytes += newline + line.len() as u64;
        damage
    }

    /// Returns the previous hash of the `damaged` record that follows.
    pub(super) fn hash(&self) -> String {
        self.hash.clone().finish()
    }
}

impl AuditChain {
    /// Starts the chain of a run.
    pub fn begin(run: &str) -> Self {
        let mut last = Sha256Hasher::default();
        last.update(run.as_bytes());
        Self { head: AuditHead { lines: 0, hash: genesis(run) }, at: Timestamp::MIN, last }
    }

    pub fn head(&self) -> &AuditHead {
        &self.head
    }

    /// Numbers a record and returns its line, newline included. The chain advances only when the caller has written the
    /// line and calls [`AuditChain::advance`].
    pub fn next_line(&self, record: AuditRecord) -> String {
        self.line_after(record, self.head.hash.clone())
    }

    /// Returns the line of a `damaged` record. The damaged bytes are hashed together with the line before, so that they
    /// are protected like a record.
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
        // The clock may be set back; timestamps in the file never decrease.
        record.at = record.at.max(self.at);
        record.prev = prev;
        let mut line = record.to_json();
        line.push('\n');
        line
    }

    /// Advances past a line that was written as record `seq`, given without its newline.
    pub fn advance(&mut self, line: &[u8], seq: u64, at: Timestamp) {
        self.head = AuditHead { lines: seq, hash: sha256(line) };
        self.at = self.at.max(at);
        self.last = Sha256Hasher::default();
        self.last.update(line);
    }
}

/// Scans an existing file line by line, so that it can be continued.
///
/// It does not verify the file: a tampered file is continued from its last record, and [`super::AuditVerifier`] detects
/// the tampering.
#[derive(Debug)]
pub struct AuditScanner {
    chain: AuditChain,
    damage: Option<AuditDamage>,
    ended: bool,
    caps: AuditRecordCaps,
    bytes_sent: u64,
}

/// The end of an existing file that is continued.
#[derive(Debug)]
pub struct AuditFileEnd {
    pub chain: AuditChain,
    /// The bytes after the last record that are not a record.
    pub damage: Option<AuditDamage>,
    /// The file ends with a newline, or is empty.
    pub ended: bool,
    /// How many records of each class there are.
    pub caps: AuditRecordCaps,
    /// How many bytes all records together report as sent.
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

    /// Adds the next line, newline included; the last one may be without.
    pub fn read_line(&mut self, line: &[u8]) {
        let text = line.strip_suffix(b"\n");
        self.ended = text.is_some();
        let text = text.unwrap_or(line);
        // A line that lacks only its newline is complete if it continues the chain.
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
