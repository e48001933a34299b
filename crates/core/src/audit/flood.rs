//! A bound on how much is written down: a program that knocks for ever must not fill the disk, and is not passed over
//! in silence either. What matters more is counted apart, so that nothing an agent causes more easily crowds it out.

use super::record::{Kind, Record};

/// So many refusals of a run are written one by one.
pub const DENIED: u64 = 100_000;
/// So many uses of a credential that was lent.
pub const LENT: u64 = 100_000;
/// So many alarms about a credential.
pub const ALARMS: u64 = 10_000;
/// So many of everything else that an agent can cause as often as it likes.
pub const OTHERS: u64 = 1_000_000;

/// What a record counts as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    Denied,
    /// A real credential went out.
    Lent,
    Alarm,
    Other,
    /// Always written: it was paid for, or it tells of the file itself. Calls that come to nothing are bounded before
    /// they are made.
    Kept,
}

impl Class {
    /// Those that are bounded.
    const BOUNDED: [Self; 4] = [Self::Denied, Self::Lent, Self::Alarm, Self::Other];

    pub fn of(record: &Record) -> Self {
        match record.kind {
            Kind::Exchange if record.is_paid() => Self::Kept,
            Kind::Decision | Kind::Exchange if record.is_denial() => Self::Denied,
            Kind::Alarm if record.credential.is_some() => Self::Alarm,
            // A call that came to nothing is had for nothing, and must not hide the next use of a credential.
            Kind::Exchange if record.credential.is_some() && record.tokens.is_none() => Self::Lent,
            Kind::Decision | Kind::Exchange | Kind::Tunnel | Kind::Spent => Self::Other,
            // An alarm that is about no credential is about the run as a whole, and told once.
            Kind::Alarm | Kind::Calling | Kind::Restarted | Kind::Closed | Kind::Skipped | Kind::Damaged => Self::Kept,
        }
    }

    /// Returns how many are written one by one, and what they are called.
    fn bound(self) -> Option<(u64, &'static str)> {
        match self {
            Self::Denied => Some((DENIED, "refusals")),
            Self::Lent => Some((LENT, "uses of credentials")),
            Self::Alarm => Some((ALARMS, "alarms")),
            Self::Other => Some((OTHERS, "records")),
            Self::Kept => None,
        }
    }
}

/// How much was written, and what was only counted since that was last told.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Flood {
    denied: Count,
    lent: Count,
    alarms: Count,
    others: Count,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Count {
    written: u64,
    untold: u64,
}

impl Flood {
    /// Goes on with a file that holds so many of a class already.
    pub fn after(written: impl IntoIterator<Item = (Class, u64)>) -> Self {
        let mut flood = Self::default();
        for (class, written) in written {
            if let Some(count) = flood.of(class) {
                count.written = written;
            }
        }
        flood
    }

    /// Takes note of a record that stands in the file.
    pub fn stands(&mut self, record: &Record) {
        if let Some(count) = self.of(Class::of(record)) {
            count.written = count.written.saturating_add(1);
        }
    }

    /// Says whether a record is written; one that is not is counted.
    pub fn admits(&mut self, record: &Record) -> bool {
        let class = Class::of(record);
        let (Some((most, _)), Some(count)) = (class.bound(), self.of(class)) else { return true };
        let admitted = count.written < most;
        *if admitted { &mut count.written } else { &mut count.untold } += 1;
        admitted
    }

    /// Says whether something was counted and not told yet.
    pub fn is_due(&self) -> bool {
        [&self.denied, &self.lent, &self.alarms, &self.others].iter().any(|count| count.untold > 0)
    }

    /// Returns the records that tell what was only counted; from then on it counts as told.
    pub fn tell(&mut self) -> Vec<Record> {
        let told = |class: Class| {
            let (most, what) = class.bound()?;
            let count = std::mem::take(&mut self.of(class)?.untold);
            let reason = format!("{what} after the first {most} of the run are only counted");
            (count > 0).then(|| Record {
                kind: Kind::Skipped,
                count: Some(count),
                reason: Some(reason),
                ..Record::default()
            })
        };
        Class::BOUNDED.into_iter().filter_map(told).collect()
    }

    fn of(&mut self, class: Class) -> Option<&mut Count> {
        match class {
            Class::Denied => Some(&mut self.denied),
            Class::Lent => Some(&mut self.lent),
            Class::Alarm => Some(&mut self.alarms),
            Class::Other => Some(&mut self.others),
            Class::Kept => None,
        }
    }
}
