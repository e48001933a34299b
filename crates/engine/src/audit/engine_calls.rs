//! Records the model calls that the engine makes itself: they bypass the egress proxy but carry a real credential too.
//!
//! Their cost is in the run's events and is repeated here for readers only: nothing is charged by these records.

use ralph_core::audit::{AuditRecord, AuditRecordKind};
use ralph_core::money::MicroUsd;
use ralph_core::price::TokenUsage;
use ralph_core::redact::Redactor;
use ralph_proxy::egress_events::ChargeBasis;
use serde::{Deserialize, Serialize};

use super::event_to_record::{now, redact_and_truncate};

/// The entry point recorded for these calls.
const ENGINE_ENTRY: &str = "engine";
/// The longest of every text.
const MAX_TEXT_BYTES: usize = 300;

/// The target of an engine call and its credential.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineCallTarget {
    pub host: String,
    pub port: u16,
    /// Without the query.
    pub path: String,
    /// The credential's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
}

/// How an engine call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineCallResult<'a> {
    pub model: &'a str,
    pub status: Option<u16>,
    /// The error, if there was one.
    pub why: Option<&'a str>,
    pub usage: TokenUsage,
    pub cost: MicroUsd,
    pub charge: ChargeBasis,
}

impl EngineCallTarget {
    /// Returns the record of a call about to be made, with its worst-case cost.
    pub(super) fn start_record(
        &self,
        model: &str,
        usage: TokenUsage,
        cost: MicroUsd,
        redactor: &Redactor,
    ) -> AuditRecord {
        AuditRecord {
            kind: AuditRecordKind::Calling,
            model: Some(redact_and_truncate(model, MAX_TEXT_BYTES, redactor)),
            tokens: Some(usage),
            cost: Some(cost),
            charge: Some(ChargeBasis::Worst.as_str().to_owned()),
            ..self.base_record(redactor)
        }
    }

    /// Returns the record of a call that ended.
    pub(super) fn end_record(&self, ended: &EngineCallResult<'_>, redactor: &Redactor) -> AuditRecord {
        let EngineCallResult { model, status, why, usage, cost, charge } = ended;
        AuditRecord {
            kind: AuditRecordKind::Exchange,
            decision: Some("allowed".to_owned()),
            reason: why.map(|why| redact_and_truncate(why, MAX_TEXT_BYTES, redactor)),
            method: Some("POST".to_owned()),
            path: Some(redact_and_truncate(&self.path, MAX_TEXT_BYTES, redactor)),
            status: *status,
            tokens: Some(*usage),
            cost: Some(*cost),
            charge: Some(charge.as_str().to_owned()),
            model: Some(redact_and_truncate(model, MAX_TEXT_BYTES, redactor)),
            ..self.base_record(redactor)
        }
    }

    fn base_record(&self, redactor: &Redactor) -> AuditRecord {
        AuditRecord {
            at: now(),
            entry: Some(ENGINE_ENTRY.to_owned()),
            host: Some(redact_and_truncate(&self.host, MAX_TEXT_BYTES, redactor)),
            port: Some(self.port),
            credential: self.credential.clone(),
            ..AuditRecord::default()
        }
    }
}
