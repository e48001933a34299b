//! Verifies that an audit log is as it was written.
//!
//! The chain alone reveals every change in the middle of a file. A truncated end or a complete rewrite is revealed only
//! by the anchors: heads of the chain that are stored in the run's events.

use std::collections::BTreeMap;

use super::chain::{AuditChain, AuditDamage, AuditHead};
use super::record::{AuditRecord, AuditRecordKind, FORMAT};
use crate::hash::sha256;

/// A head of the chain that is stored in an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditAnchor {
    /// The number of the event.
    pub event: u64,
    pub head: AuditHead,
}

/// The first fault of a file. Lines are counted from 1, as in an editor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AuditFault {
    #[error("line {line} was changed")]
    Changed { line: u64 },
    #[error("line {line} is not a record")]
    Unreadable { line: u64 },
    #[error("line {line} begins the file of another run, or was changed")]
    Stranger { line: u64 },
    #[error("{} missing before line {line}", records(*.first, *.last))]
    Missing { line: u64, first: u64, last: u64 },
    #[error("line {line} is out of order: it holds record {seq} instead of {wanted}")]
    Moved { line: u64, seq: u64, wanted: u64 },
    #[error("line {line} is a duplicate: it holds record {seq} again")]
    Repeated { line: u64, seq: u64 },
    #[error("line {line} is torn: it ends after {bytes} bytes without a newline")]
    Torn { line: u64, bytes: u64 },
    #[error("the file ends after {lines} records, and event {event} says there were {anchored}")]
    Short { lines: u64, anchored: u64, event: u64 },
    #[error("line {line} is not the one that event {event} anchored: it or an earlier line was rewritten")]
    Rewritten { line: u64, event: u64 },
    #[error("the file is written in format {found}, and this ralph reads up to {FORMAT}")]
    Newer { found: u32 },
}

impl AuditFault {
    /// Returns the name used in `--json` output.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Changed { .. } => "changed",
            Self::Unreadable { .. } => "unreadable",
            Self::Stranger { .. } => "stranger",
            Self::Missing { .. } => "missing",
            Self::Moved { .. } => "moved",
            Self::Repeated { .. } => "repeated",
            Self::Torn { .. } => "torn",
            Self::Short { .. } => "short",
            Self::Rewritten { .. } => "rewritten",
            Self::Newer { .. } => "newer",
        }
    }

    /// Returns the line of the fault, if it has one.
    pub fn line(&self) -> Option<u64> {
        match self {
            Self::Changed { line }
            | Self::Unreadable { line }
            | Self::Stranger { line }
            | Self::Missing { line, .. }
            | Self::Moved { line, .. }
            | Self::Repeated { line, .. }
            | Self::Torn { line, .. }
            | Self::Rewritten { line, .. } => Some(*line),
            Self::Short { .. } | Self::Newer { .. } => None,
        }
    }

    pub fn hint(&self, run: &str) -> Option<String> {
        match self {
            Self::Torn { .. } => Some(format!("a crash or a full disk left it; ralph resume {run} continues after it")),
            Self::Newer { .. } => Some("upgrade ralph, or verify with the version that made the run".to_owned()),
            _ => Some(format!("do not rely on this file; ralph logs {run} shows what the events say")),
        }
    }
}

fn records(first: u64, last: u64) -> String {
    if first == last { format!("record {first} is") } else { format!("records {first} to {last} are") }
}

/// The summary of a file without a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditVerification {
    pub head: AuditHead,
    /// The last anchor the file was compared with.
    pub anchor: Option<AuditAnchor>,
    /// How many places a crash or a full disk damaged, each followed by a record that says so.
    pub damaged: u64,
    /// How many records were only counted and not written.
    pub skipped: u64,
}

impl AuditVerification {
    /// Returns how many records came after the last anchor and are not covered by it.
    pub fn unanchored(&self) -> u64 {
        self.head.lines - self.anchor.as_ref().map_or(0, |anchor| anchor.head.lines.min(self.head.lines))
    }
}

/// Reads a file line by line and stops at the first fault.
#[derive(Debug)]
pub struct AuditVerifier {
    chain: AuditChain,
    anchors: BTreeMap<u64, AuditAnchor>,
    /// How many lines were read.
    line: u64,
    /// The line of the last record.
    last: u64,
    damage: Option<(AuditDamage, u64)>,
    /// A line that does not continue the one before; the next one may show which of the two was changed.
    suspect: Option<SuspectLine>,
    fault: Option<AuditFault>,
    damaged: u64,
    skipped: u64,
}

#[derive(Debug)]
enum SuspectLine {
    /// The number is right and the hash is not.
    Link { line: u64, before: u64, seq: u64, hash: String },
    /// The line holds a later record than expected; the expected one may still follow.
    Place { line: u64, seq: u64, wanted: u64 },
}

impl AuditVerifier {
    pub fn new(run: &str, anchors: impl IntoIterator<Item = AuditAnchor>) -> Self {
        // A file that was cut and continued is anchored twice at the same record; the first anchor counts.
        let mut places = BTreeMap::new();
        for anchor in anchors {
            places.entry(anchor.head.lines).or_insert(anchor);
        }
        Self {
            chain: AuditChain::begin(run),
            anchors: places,
            line: 0,
            last: 0,
            damage: None,
            suspect: None,
            fault: None,
            damaged: 0,
            skipped: 0,
        }
    }

    /// Adds the next line, newline included; the last one may be without. Returns false once a fault was found.
    pub fn read_line(&mut self, line: &[u8]) -> bool {
        if self.fault.is_some() {
            return false;
        }
        self.line += 1;
        if let Some(suspect) = self.suspect.take() {
            self.resolve_suspect(suspect, line);
        } else if let Some(text) = line.strip_suffix(b"\n") {
            self.check_record(text);
        } else {
            self.fault =
                Some(self.take_open_fault().unwrap_or(AuditFault::Torn { line: self.line, bytes: line.len() as u64 }));
        }
        self.fault.is_none()
    }

    fn check_record(&mut self, text: &[u8]) {
        let line = self.line;
        let Some(record) = AuditRecord::parse(text) else {
            let first = self.damage.as_ref().map_or(line, |(_, first)| *first);
            let damage = self.damage.take().map(|(damage, _)| damage);
            self.damage = Some((AuditDamage::add(damage, &self.chain, text), first));
            return;
        };
        if let Some(found) = record.format.filter(|format| *format > FORMAT) {
            self.fault = Some(AuditFault::Newer { found });
            return;
        }
        let mut prev = self.chain.head().hash.clone();
        if let Some((damage, first)) = self.damage.take() {
            // Damaged bytes are accepted only if the record after them declares them; otherwise the line was changed.
            if record.kind != AuditRecordKind::Damaged
                || record.bytes != Some(damage.bytes())
                || record.prev != damage.hash()
            {
                self.fault = Some(AuditFault::Unreadable { line: first });
                return;
            }
            prev = damage.hash();
        }
        let wanted = self.chain.head().lines.saturating_add(1);
        let hash = sha256(text);
        match (record.seq == wanted, record.prev == prev) {
            (true, true) => self.accept(text, &record),
            // The previous hash matches, so the line is in the right place and its number was changed.
            (false, true) => self.fault = Some(AuditFault::Changed { line }),
            (true, false) => {
                self.suspect = Some(SuspectLine::Link { line, before: self.last, seq: record.seq, hash });
            }
            (false, false) if record.seq < wanted => {
                self.fault = Some(AuditFault::Repeated { line, seq: record.seq });
            }
            (false, false) => self.suspect = Some(SuspectLine::Place { line, seq: record.seq, wanted }),
        }
    }

    fn accept(&mut self, text: &[u8], record: &AuditRecord) {
        self.chain.advance(text, record.seq, record.at);
        self.last = self.line;
        self.damaged += u64::from(record.kind == AuditRecordKind::Damaged);
        self.skipped = self.skipped.saturating_add(record.count.unwrap_or(0));
        if let Some(anchor) = self.anchors.get(&record.seq)
            && anchor.head != *self.chain.head()
        {
            self.fault = Some(AuditFault::Rewritten { line: self.line, event: anchor.event });
        }
    }

    fn resolve_suspect(&mut self, suspect: SuspectLine, line: &[u8]) {
        let record = AuditRecord::parse(line.strip_suffix(b"\n").unwrap_or(line));
        match suspect {
            SuspectLine::Link { line, before, seq, hash } => {
                let vouched = record.is_some_and(|record| record.prev == hash);
                self.fault = Some(self.changed_line(line, before, seq, &hash, vouched));
            }
            SuspectLine::Place { line, seq, wanted } if record.is_some_and(|record| record.seq == wanted) => {
                self.fault = Some(AuditFault::Moved { line, seq, wanted });
            }
            suspect @ SuspectLine::Place { .. } => self.suspect = Some(suspect),
        }
    }

    /// Returns which of two adjacent lines was changed: this line, or the one before it, whose hash this line contains.
    fn changed_line(&self, line: u64, before: u64, seq: u64, hash: &str, vouched: bool) -> AuditFault {
        let holds = |seq: u64, hash: &str| self.anchors.get(&seq).is_some_and(|anchor| anchor.head.hash == hash);
        let head = self.chain.head();
        let intact = !holds(head.lines, &head.hash) && (vouched || holds(seq, hash));
        match before {
            0 if intact => AuditFault::Stranger { line },
            before if intact => AuditFault::Changed { line: before },
            _ => AuditFault::Changed { line },
        }
    }

    /// Returns the fault that is still undecided at the end of the file.
    fn take_open_fault(&mut self) -> Option<AuditFault> {
        match self.suspect.take() {
            Some(SuspectLine::Link { line, before, seq, hash }) => {
                return Some(self.changed_line(line, before, seq, &hash, false));
            }
            Some(SuspectLine::Place { line, seq, wanted }) => {
                return Some(AuditFault::Missing { line, first: wanted, last: seq - 1 });
            }
            None => (),
        }
        self.damage.take().map(|(_, first)| AuditFault::Unreadable { line: first })
    }

    /// Returns the first fault, or the summary of the file.
    pub fn finish(mut self) -> Result<AuditVerification, AuditFault> {
        if let Some(fault) = self.fault.take().or_else(|| self.take_open_fault()) {
            return Err(fault);
        }
        let head = self.chain.head().clone();
        let anchor = self.anchors.into_values().next_back();
        if let Some(AuditAnchor { event, head: anchored }) = &anchor
            && anchored.lines > head.lines
        {
            return Err(AuditFault::Short { lines: head.lines, anchored: anchored.lines, event: *event });
        }
        Ok(AuditVerification { head, anchor, damaged: self.damaged, skipped: self.skipped })
    }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
