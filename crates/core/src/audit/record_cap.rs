//! Limits how many records are written, so that a program that retries forever cannot fill the disk; the records left
//! out are counted. Each class has its own cap, so that records an agent can cause easily never displace more important
//! ones.

use super::record::{AuditRecord, AuditRecordKind};

/// How many refusals of a run are written one by one.
pub const MAX_DENIED: u64 = 100_000;
/// How many uses of a granted credential are written.
pub const MAX_CREDENTIAL_USES: u64 = 100_000;
/// How many alarms about a credential are written.
pub const MAX_ALARMS: u64 = 10_000;
/// How many of all other records that an agent can cause at will are written.
pub const MAX_OTHERS: u64 = 1_000_000;

/// The class of a record, which decides its cap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuditRecordClass {
    Denied,
    /// A real credential was sent.
    CredentialUse,
    Alarm,
    Other,
    /// Always written: a charged call, or a record about the file itself. Calls that fail are limited before they are
    /// sent.
    Uncapped,
}

impl AuditRecordClass {
    /// The classes with a cap.
    const BOUNDED: [Self; 4] = [Self::Denied, Self::CredentialUse, Self::Alarm, Self::Other];

    pub fn of(record: &AuditRecord) -> Self {
        match record.kind {
            AuditRecordKind::Exchange if record.is_paid() => Self::Uncapped,
            AuditRecordKind::Decision | AuditRecordKind::Exchange if record.is_denial() => Self::Denied,
            AuditRecordKind::Alarm if record.credential.is_some() => Self::Alarm,
            // A failed call costs nothing, so an agent can make many; they must not hide the next use of a credential.
            AuditRecordKind::Exchange if record.credential.is_some() && record.tokens.is_none() => Self::CredentialUse,
            AuditRecordKind::Decision
            | AuditRecordKind::Exchange
            | AuditRecordKind::Tunnel
            | AuditRecordKind::Spent => Self::Other,
            // An alarm without a credential is about the run as a whole, and is raised once.
            AuditRecordKind::Alarm
            | AuditRecordKind::Calling
            | AuditRecordKind::Restarted
            | AuditRecordKind::Closed
            | AuditRecordKind::Skipped
            | AuditRecordKind::Damaged => Self::Uncapped,
        }
    }

    /// Returns how many records are written one by one, and the plural noun for them.
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

/// How many records were written, and how many were only counted since the last report.
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
    /// Creates the caps for a file that already holds these numbers of records.
    pub fn with_written(written: impl IntoIterator<Item = (AuditRecordClass, u64)>) -> Self {
        let mut caps = Self::default();
        for (class, written) in written {
            if let Some(count) = caps.count_mut(class) {
                count.written = written;
            }
        }
        caps
    }

    /// Counts a record that is in the file.
    pub fn count_written(&mut self, record: &AuditRecord) {
        if let Some(count) = self.count_mut(AuditRecordClass::of(record)) {
            count.written = count.written.saturating_add(1);
        }
    }

    /// Returns whether to write a record; one that is not written is counted.
    pub fn admit(&mut self, record: &AuditRecord) -> bool {
        let class = AuditRecordClass::of(record);
        let (Some((most, _)), Some(count)) = (class.cap(), self.count_mut(class)) else { return true };
        let admitted = count.written < most;
        *if admitted { &mut count.written } else { &mut count.unreported } += 1;
        admitted
    }

    /// Returns whether there are counted records that were not reported yet.
    pub fn has_unreported(&self) -> bool {
        [&self.denied, &self.credential_uses, &self.alarms, &self.others].iter().any(|count| count.unreported > 0)
    }

    /// Returns the records that report what was only counted, and marks it as reported.
    pub fn take_skipped_records(&mut self) -> Vec<AuditRecord> {
        let skipped_record = |class: AuditRecordClass| {
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
        AuditRecordClass::BOUNDED.into_iter().filter_map(skipped_record).collect()
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
