//! Defines one line of the audit log.

use std::fmt;
use std::fmt::Write as _;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::money::MicroUsd;
use crate::price::TokenUsage;

/// The format version of `audit.jsonl`, which its first line states.
pub const FORMAT: u32 = 1;

/// The kind of a record.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AuditRecordKind {
    /// A connection or a name was allowed or refused.
    #[default]
    Decision,
    /// An inspected request, at its end: forwarded, or refused.
    Exchange,
    /// A tunnel that was passed on unread, at its end.
    Tunnel,
    /// A model call is about to be sent, with its worst-case cost; the exchange that follows has the real one.
    Calling,
    /// Something that must not happen.
    Alarm,
    /// A call was refused because the budget is spent.
    Spent,
    /// The egress proxy of a sandbox restarted.
    Restarted,
    /// The egress proxy of a sandbox was closed.
    Closed,
    /// Records that were only counted and not written one by one.
    Skipped,
    /// Bytes before this record that are not a record: a crash or a full disk truncated a line.
    Damaged,
}

impl AuditRecordKind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Decision => "decision",
            Self::Exchange => "exchange",
            Self::Tunnel => "tunnel",
            Self::Calling => "calling",
            Self::Alarm => "alarm",
            Self::Spent => "spent",
            Self::Restarted => "restarted",
            Self::Closed => "closed",
            Self::Skipped => "skipped",
            Self::Damaged => "damaged",
        }
    }
}

impl fmt::Display for AuditRecordKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A record of one event at the egress proxy of a run. The chain numbers it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditRecord {
    /// The position in the file, from 1.
    pub seq: u64,
    /// Only in the first record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<u32>,
    pub at: Timestamp,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sandbox: String,
    pub kind: AuditRecordKind,
    /// The entry point of the proxy that the connection used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<String>,
    /// `allowed` or `denied`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The rule that would allow what was refused, if one can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The last address that was checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Without its query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Bytes of the bodies, or of a whole tunnel, sent to the network and received.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<u64>,
    /// How long a tunnel was open, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<TokenUsage>,
    /// Micro-dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<MicroUsd>,
    /// What the cost was computed from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charge: Option<String>,
    /// The credential's name, never its value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// How many records a `skipped` record replaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// How many bytes a `damaged` record covers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The hash of the line before, without its newline; in the first line that of the run's id.
    pub prev: String,
}

impl AuditRecord {
    /// Returns whether the record is about a refusal.
    pub fn is_denial(&self) -> bool {
        matches!(self.kind, AuditRecordKind::Decision | AuditRecordKind::Exchange)
            && self.decision.as_deref() == Some("denied")
    }

    /// Returns whether the record is about a charged call. One that the provider refused, or that was never sent, is
    /// not charged.
    pub fn is_paid(&self) -> bool {
        self.tokens.is_some() && self.charge.as_deref() != Some("nothing")
    }

    /// Returns the bytes sent by anything but a charged call: the part of a run's outgoing bytes that the audit log
    /// counts.
    pub fn unpaid_bytes_sent(&self) -> u64 {
        if self.tokens.is_some() { 0 } else { self.sent.unwrap_or(0) }
    }

    /// Writes the record as one line of plain ASCII without its newline: text from a client cannot end the
    /// line or control a terminal that shows the file.
    pub fn to_json(&self) -> String {
        let json = serde_json::to_string(self).expect("a record holds only plain data with string keys");
        let mut line = String::with_capacity(json.len());
        for c in json.chars() {
            // Outside strings JSON is printable ASCII, so any other character is in a string and may be escaped.
            if matches!(c, ' '..='~') {
                line.push(c);
            } else {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    write!(line, "\\u{unit:04x}").expect("writing to a String cannot fail");
                }
            }
        }
        line
    }

    /// Reads one line without its newline. Fields of a later version are ignored.
    pub fn parse(line: &[u8]) -> Option<Self> {
        serde_json::from_slice(line).ok()
    }
}
