//! A bound on how much is written down: a program that knocks for ever must not fill the disk, and is not passed over
//! in silence either.

use super::record::{Kind, Record};

/// So many refusals of a run are written one by one.
pub const DENIED: u64 = 100_000;
/// So many of everything else that an agent can cause as often as it likes.
pub const OTHERS: u64 = 1_000_000;

/// What a record counts as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    Denied,
    Other,
    /// Always written: it was paid for, or it tells of the file itself.
    Kept,
}

impl Class {
    pub fn of(record: &Record) -> Self {
        match record.kind {
            Kind::Exchange if record.tokens.is_some() => Self::Kept,
            Kind::Decision | Kind::Exchange if record.is_denial() => Self::Denied,
            // Of these an agent can cause many as well, but nothing else it causes may crowd them out.
            Kind::Alarm | Kind::Exchange if record.credential.is_some() => Self::Denied,
            Kind::Decision | Kind::Exchange | Kind::Tunnel | Kind::Spent => Self::Other,
            // An alarm that is about no credential is about the run as a whole, and told once.
            Kind::Alarm | Kind::Calling | Kind::Restarted | Kind::Closed | Kind::Skipped | Kind::Damaged => Self::Kept,
        }
    }
}

/// How much was written, and what was only counted since that was last told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Flood {
    denied: u64,
    others: u64,
    untold_denied: u64,
    untold_others: u64,
}

impl Flood {
    /// Goes on with a file that holds so much already.
    pub fn after(denied: u64, others: u64) -> Self {
        Self { denied, others, ..Self::default() }
    }

    /// Says whether a record is written; one that is not is counted.
    pub fn admits(&mut self, record: &Record) -> bool {
        let (written, untold, most) = match Class::of(record) {
            Class::Kept => return true,
            Class::Denied => (&mut self.denied, &mut self.untold_denied, DENIED),
            Class::Other => (&mut self.others, &mut self.untold_others, OTHERS),
        };
        let admitted = *written < most;
        *if admitted { written } else { untold } += 1;
        admitted
    }

    /// Says whether something was counted and not told yet.
    pub fn is_due(&self) -> bool {
        self.untold_denied > 0 || self.untold_others > 0
    }

    /// Returns the records that tell what was only counted; from then on it counts as told.
    pub fn tell(&mut self) -> Vec<Record> {
        let told = |count: &mut u64, reason: String| {
            let count = std::mem::take(count);
            (count > 0).then(|| Record {
                kind: Kind::Skipped,
                count: Some(count),
                reason: Some(reason),
                ..Record::default()
            })
        };
        [
            told(&mut self.untold_denied, format!("refusals after the first {DENIED} of the run are only counted")),
            told(&mut self.untold_others, format!("records after the first {OTHERS} of the run are only counted")),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}
