//! Calls of models that the engine makes itself: they pass no door, and a real credential goes out with them all the same.
//!
//! What they cost is in the run's events and stands here only to be read: nothing is charged by these records.

use ralph_core::audit::{Kind, Record};
use ralph_core::money::Micros;
use ralph_core::price::Usage;
use ralph_core::redact::Redactor;
use ralph_proxy::notice::Charge;
use serde::{Deserialize, Serialize};

use super::told::{bounded, now};

/// The way by which such a call leaves.
const ENTRY: &str = "engine";
/// The longest of every text.
const WORDS: usize = 300;

/// Where a call of the engine's own goes, and with what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Own {
    pub host: String,
    pub port: u16,
    /// Without the query.
    pub path: String,
    /// The credential's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
}

/// How such a call ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended<'a> {
    pub model: &'a str,
    pub status: Option<u16>,
    /// What went wrong.
    pub why: Option<&'a str>,
    pub usage: Usage,
    pub cost: Micros,
    pub charge: Charge,
}

impl Own {
    /// Tells that a call is about to be made and may cost so much.
    pub(super) fn calling(&self, model: &str, usage: Usage, cost: Micros, redactor: &Redactor) -> Record {
        Record {
            kind: Kind::Calling,
            model: Some(bounded(model, WORDS, redactor)),
            tokens: Some(usage),
            cost: Some(cost),
            charge: Some(Charge::Worst.as_str().to_owned()),
            ..self.base(redactor)
        }
    }

    /// Tells how it ended.
    pub(super) fn ended(&self, ended: &Ended<'_>, redactor: &Redactor) -> Record {
        let Ended { model, status, why, usage, cost, charge } = ended;
        Record {
            kind: Kind::Exchange,
            decision: Some("allowed".to_owned()),
            reason: why.map(|why| bounded(why, WORDS, redactor)),
            method: Some("POST".to_owned()),
            path: Some(bounded(&self.path, WORDS, redactor)),
            status: *status,
            tokens: Some(*usage),
            cost: Some(*cost),
            charge: Some(charge.as_str().to_owned()),
            model: Some(bounded(model, WORDS, redactor)),
            ..self.base(redactor)
        }
    }

    fn base(&self, redactor: &Redactor) -> Record {
        Record {
            at: now(),
            entry: Some(ENTRY.to_owned()),
            host: Some(bounded(&self.host, WORDS, redactor)),
            port: Some(self.port),
            credential: self.credential.clone(),
            ..Record::default()
        }
    }
}
