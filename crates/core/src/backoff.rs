//! Computes how long a run waits for a provider that does not answer before it pauses for a person.
//!
//! An outage ends by itself, and a run is often unattended for a night, so it retries with growing waits. Errors that
//! cannot go away by themselves, such as a wrong key, are not retried; the caller decides which those are.

use std::time::Duration;

/// The waits of one outage; the last is repeated.
const WAITS: [Duration; 4] =
    [Duration::from_mins(1), Duration::from_mins(2), Duration::from_mins(5), Duration::from_mins(15)];

/// The maximum total wait for one outage.
const MAX_TOTAL_WAIT: Duration = Duration::from_hours(8);

/// The maximum number of retries where each may be charged.
const MAX_PAID_RETRIES: u32 = 6;

/// What a retry costs when there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryCost {
    Free,
    /// Each retry may be charged at its worst case.
    Paid,
}

/// Returns how long to wait after `times` consecutive waits, or `None` when a person is needed. The waits of one
/// outage together never exceed the time the run has `left`.
pub fn wait(times: u32, tries: RetryCost, left: Duration) -> Option<Duration> {
    if tries == RetryCost::Paid && times >= MAX_PAID_RETRIES {
        return None;
    }
    let nth = |n: u32| WAITS[usize::try_from(n).unwrap_or(usize::MAX).min(WAITS.len() - 1)];
    let mut whole = Duration::ZERO;
    for n in 0..=times {
        whole += nth(n);
        if whole > left.min(MAX_TOTAL_WAIT) {
            return None;
        }
    }
    Some(nth(times))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(tries: RetryCost, left: Duration, want: &[u64]) {
        let waits = (0..).map_while(|times| wait(times, tries, left)).map(|wait| wait.as_secs() / 60);
        assert_eq!(waits.collect::<Vec<_>>(), want);
    }

    #[test]
    fn waits_grow_until_a_person_is_needed() {
        check(RetryCost::Free, Duration::from_hours(1), &[1, 2, 5, 15, 15, 15]);
        check(RetryCost::Free, Duration::from_mins(8), &[1, 2, 5]);
        check(RetryCost::Free, Duration::from_secs(30), &[]);
        check(RetryCost::Paid, Duration::from_hours(9), &[1, 2, 5, 15, 15, 15]);
        let night: u64 =
            (0..).map_while(|times| wait(times, RetryCost::Free, Duration::MAX)).map(|wait| wait.as_secs()).sum();
        assert!((7 * 3600..=8 * 3600).contains(&night), "{night}");
        assert_eq!(wait(u32::MAX, RetryCost::Free, Duration::MAX), None);
    }
}
