//! One line of the audit file.

use std::fmt;
use std::fmt::Write as _;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::money::MicroUsd;
use crate::price::TokenUsage;

/// The number of the format that `audit.jsonl` is written in; its first line says it.
pub const FORMAT: u32 = 1;

/// What a record tells of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AuditRecordKind {
    /// A connection or a name was allowed or refused.
    #[default]
    Decision,
    /// A request that was looked into, at its end: carried, or refused.
    Exchange,
    /// A tunnel that was carried without being looked into, at its end.
    Tunnel,
    /// A call of a model is about to be made and may cost so much; the exchange that follows says what it did.
    Calling,
    /// Something that must not happen.
    Alarm,
    /// A call was refused because the budget is spent.
    Spent,
    /// The doors were served anew.
    Restarted,
    /// The doors of a sandbox were closed.
    Closed,
    /// Records that were not written, one by one at least.
    Skipped,
    /// Bytes before this record that are none: a crash or a full disk cut a line off.
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

/// What is written down of one thing that happened at the doors of a run. The chain gives it its place.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditRecord {
    /// The place in the file, from 1.
    pub seq: u64,
    /// Only in the first record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<u32>,
    pub at: Timestamp,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub sandbox: String,
    pub kind: AuditRecordKind,
    /// The way by which a connection asked to leave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entry: Option<String>,
    /// `allowed` or `denied`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The rule that would allow what was refused, where one can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The address that was judged last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Without its query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Bytes of the bodies, or of a whole tunnel, towards the world and back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<u64>,
    /// How long a tunnel stood, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<TokenUsage>,
    /// Micro-dollars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost: Option<MicroUsd>,
    /// What the cost was worked out from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charge: Option<String>,
    /// The credential's name, never its value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// How many things a `skipped` record stands for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// How many bytes a `damaged` record speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// The hash of the line before, without its newline; in the first line that of the run's id.
    pub prev: String,
}

impl AuditRecord {
    /// Says whether it tells of a refusal.
    pub fn is_denial(&self) -> bool {
        matches!(self.kind, AuditRecordKind::Decision | AuditRecordKind::Exchange)
            && self.decision.as_deref() == Some("denied")
    }

    /// Says whether it tells of a call that was charged for: one that the provider refused, or was never sent, is not.
    pub fn is_paid(&self) -> bool {
        self.tokens.is_some() && self.charge.as_deref() != Some("nothing")
    }

    /// Returns how many bytes left that nobody paid for: the audit's half of what a run has sent out.
    pub fn unpaid_bytes_sent(&self) -> u64 {
        if self.tokens.is_some() { 0 } else { self.sent.unwrap_or(0) }
    }

    /// Writes the record as one line of plain ASCII without its newline: whatever a client wrote, it cannot end the line
    /// or drive a terminal that shows the file.
    pub fn to_json(&self) -> String {
        let json = serde_json::to_string(self).expect("a record holds only plain data with string keys");
        let mut line = String::with_capacity(json.len());
        for c in json.chars() {
            // Outside of strings JSON is printable ASCII, so whatever is not stands in a string and may be escaped.
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

    /// Reads one line without its newline. Fields of a later version are passed over.
    pub fn parse(line: &[u8]) -> Option<Self> {
        serde_json::from_slice(line).ok()
    }
}
