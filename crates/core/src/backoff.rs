//! How long a run waits for a provider that gives no answer before it asks for a person.
//!
//! An outage heals by itself, and a run is often alone for a night; so it asks again after growing waits. Trouble that
//! cannot heal, such as a wrong key, is not waited for: who judges that is the caller.

use std::time::Duration;

/// The waits of one outage; the last is repeated.
const WAITS: [Duration; 4] =
    [Duration::from_mins(1), Duration::from_mins(2), Duration::from_mins(5), Duration::from_mins(15)];

/// Nobody waits longer than this for one outage.
const MAX_TOTAL_WAIT: Duration = Duration::from_hours(8);

/// So often is asked again where each try may be charged.
const MAX_PAID_RETRIES: u32 = 6;

/// What asking again costs when there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryCost {
    Free,
    /// Each may be charged at its worst.
    Paid,
}

/// Returns how long to wait when it was waited `times` in a row, or `None` when a person is needed. All the waits of an
/// outage together are no longer than what the run has `left` of its time.
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
    fn waits_grow_until_a_person_is_asked() {
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
