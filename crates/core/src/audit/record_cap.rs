//! A bound on how much is written down: a program that knocks for ever must not fill the disk, and is not passed over
//! in silence either. What matters more is counted apart, so that nothing an agent causes more easily crowds it out.

use super::record::{AuditRecord, AuditRecordKind};

/// So many refusals of a run are written one by one.
pub const MAX_DENIED: u64 = 100_000;
/// So many uses of a credential that was lent.
pub const MAX_CREDENTIAL_USES: u64 = 100_000;
/// So many alarms about a credential.
pub const MAX_ALARMS: u64 = 10_000;
/// So many of everything else that an agent can cause as often as it likes.
pub const MAX_OTHERS: u64 = 1_000_000;

/// What a record counts as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditRecordClass {
    Denied,
    /// A real credential went out.
    CredentialUse,
    Alarm,
    Other,
    /// Always written: it was paid for, or it tells of the file itself. Calls that come to nothing are bounded before
    /// they are made.
    Uncapped,
}

impl AuditRecordClass {
    /// Those that are bounded.
    const BOUNDED: [Self; 4] = [Self::Denied, Self::CredentialUse, Self::Alarm, Self::Other];

    pub fn of(record: &AuditRecord) -> Self {
        match record.kind {
            AuditRecordKind::Exchange if record.is_paid() => Self::Uncapped,
            AuditRecordKind::Decision | AuditRecordKind::Exchange if record.is_denial() => Self::Denied,
            AuditRecordKind::Alarm if record.credential.is_some() => Self::Alarm,
            // A call that came to nothing is had for nothing, and must not hide the next use of a credential.
            AuditRecordKind::Exchange if record.credential.is_some() && record.tokens.is_none() => Self::CredentialUse,
            AuditRecordKind::Decision
            | AuditRecordKind::Exchange
            | AuditRecordKind::Tunnel
            | AuditRecordKind::Spent => Self::Other,
            // An alarm that is about no credential is about the run as a whole, and told once.
            AuditRecordKind::Alarm
            | AuditRecordKind::Calling
            | AuditRecordKind::Restarted
            | AuditRecordKind::Closed
            | AuditRecordKind::Skipped
            | AuditRecordKind::Damaged => Self::Uncapped,
        }
    }

    /// Returns how many are written one by one, and what they are called.
    fn cap(self) -> Option<(u64, &'static str)> {
        match self {
            Self::Denied => Some((MAX_DENIED, "refusals")),
            Self::CredentialUse => Some((MAX_CREDENTIAL_USES, "uses of credentials")),
            Self::Alarm => Some((MAX_ALARMS, "alarms")),
            Self::Other => Some((MAX_OTHERS, "records")),
            Self::Uncapped => None,
        }
    }
}

/// How much was written, and what was only counted since that was last told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditRecordCaps {
    denied: AuditRecordCount,
    credential_uses: AuditRecordCount,
    alarms: AuditRecordCount,
    others: AuditRecordCount,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct AuditRecordCount {
    written: u64,
    unreported: u64,
}

impl AuditRecordCaps {
    /// Goes on with a file that holds so many of a class already.
    pub fn with_written(written: impl IntoIterator<Item = (AuditRecordClass, u64)>) -> Self {
        let mut flood = Self::default();
        for (class, written) in written {
            if let Some(count) = flood.count_mut(class) {
                count.written = written;
            }
        }
        flood
    }

    /// Takes note of a record that stands in the file.
    pub fn count_written(&mut self, record: &AuditRecord) {
        if let Some(count) = self.count_mut(AuditRecordClass::of(record)) {
            count.written = count.written.saturating_add(1);
        }
    }

    /// Says whether a record is written; one that is not is counted.
    pub fn admit(&mut self, record: &AuditRecord) -> bool {
        let class = AuditRecordClass::of(record);
        let (Some((most, _)), Some(count)) = (class.cap(), self.count_mut(class)) else { return true };
        let admitted = count.written < most;
        *if admitted { &mut count.written } else { &mut count.unreported } += 1;
        admitted
    }

    /// Says whether something was counted and not told yet.
    pub fn has_unreported(&self) -> bool {
        [&self.denied, &self.credential_uses, &self.alarms, &self.others].iter().any(|count| count.unreported > 0)
    }

    /// Returns the records that tell what was only counted; from then on it counts as told.
    pub fn take_skipped_records(&mut self) -> Vec<AuditRecord> {
        let told = |class: AuditRecordClass| {
            let (most, what) = class.cap()?;
            let count = std::mem::take(&mut self.count_mut(class)?.unreported);
            let reason = format!("{what} after the first {most} of the run are only counted");
            (count > 0).then(|| AuditRecord {
                kind: AuditRecordKind::Skipped,
                count: Some(count),
                reason: Some(reason),
                ..AuditRecord::default()
            })
        };
        AuditRecordClass::BOUNDED.into_iter().filter_map(told).collect()
    }

    fn count_mut(&mut self, class: AuditRecordClass) -> Option<&mut AuditRecordCount> {
        match class {
            AuditRecordClass::Denied => Some(&mut self.denied),
            AuditRecordClass::CredentialUse => Some(&mut self.credential_uses),
            AuditRecordClass::Alarm => Some(&mut self.alarms),
            AuditRecordClass::Other => Some(&mut self.others),
            AuditRecordClass::Uncapped => None,
        }
    }
}
