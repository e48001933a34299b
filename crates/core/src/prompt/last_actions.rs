//! The results of the actions of the newest iteration: each as a line of ralph's own, with both ends of its output.
//!
//! A model answers before its commands run, so this is the only place where it sees their output.

use crate::text;

/// The maximum number of actions shown: the last ones.
pub const SHOWN_ACTIONS: usize = 16;

/// The maximum output shown of all actions together, and of one of them.
pub(super) const OUTPUT_BYTES: usize = 24 * 1024;
const MAX_ACTION_OUTPUT_BYTES: usize = 16 * 1024;

/// The maximum length of the line that names the action and its result.
pub(super) const LINE_BYTES: usize = 384;

/// The actions of one iteration, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastActions<'a> {
    pub iteration: u32,
    pub actions: &'a [LastAction<'a>],
}

/// One action that was executed, or attempted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LastAction<'a> {
    pub index: u32,
    /// What it did, in one line.
    pub brief: &'a str,
    /// How it ended: `exit 0`, `done`, `failed`.
    pub ended: &'a str,
    /// Why it ended so, where that is not obvious.
    pub why: &'a str,
    /// Its output; `None` for a kind of action that prints nothing.
    pub output: Option<OutputEnds<'a>>,
}

/// Both ends of a text whose middle may be missing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OutputEnds<'a> {
    pub start: &'a str,
    pub end: &'a str,
    /// The number of unread bytes between the two.
    pub unread: u64,
}

impl<'a> OutputEnds<'a> {
    /// Returns a text with nothing missing.
    pub fn whole(text: &'a str) -> Self {
        Self { start: text, ..Self::default() }
    }

    pub(super) fn bytes(&self) -> u64 {
        let read = self.start.len().saturating_add(self.end.len());
        u64::try_from(read).unwrap_or(u64::MAX).saturating_add(self.unread)
    }

    /// Returns as much of both ends as there is room for.
    pub(super) fn truncated_to(&self, room: usize) -> Self {
        if self.start.len().saturating_add(self.end.len()) <= room {
            return *self;
        }
        let tail = if self.end.is_empty() { self.start } else { self.end };
        let (start, end) = (text::head(self.start, room / 2), super::prompt_part::tail_bytes(tail, room - room / 2));
        let shown = u64::try_from(start.len() + end.len()).unwrap_or(u64::MAX);
        Self { start, end, unread: self.bytes().saturating_sub(shown) }
    }
}

/// Divides the room for outputs among outputs of these sizes: small ones are shown completely, and what they leave
/// goes to the large ones. A caller that reads them from files needs no more than that of each, half from its start
/// and half from its end.
pub fn output_caps(sizes: &[u64]) -> Vec<usize> {
    let hidden = sizes.len().saturating_sub(SHOWN_ACTIONS);
    let want = |(at, size): (usize, &u64)| {
        if at < hidden { 0 } else { usize::try_from(*size).unwrap_or(usize::MAX).min(MAX_ACTION_OUTPUT_BYTES) }
    };
    let wanted: Vec<usize> = sizes.iter().enumerate().map(want).collect();
    let mut sorted = wanted.clone();
    sorted.sort_unstable();
    let (mut left, mut most) = (OUTPUT_BYTES, MAX_ACTION_OUTPUT_BYTES);
    for (at, want) in sorted.iter().enumerate() {
        let share = left / (sorted.len() - at);
        if *want > share {
            most = share;
            break;
        }
        left -= want;
    }
    wanted.into_iter().map(|want| want.min(most)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn small_outputs_leave_room_for_large_ones() {
        const KIB: u64 = 1024;
        for (sizes, want) in [
            (vec![], vec![]),
            (vec![0, 7], vec![0, 7]),
            (vec![100 * KIB], vec![16 << 10]),
            (vec![100 * KIB, KIB], vec![16 << 10, 1 << 10]),
            (vec![100 * KIB, 100 * KIB, KIB], vec![23 << 9, 23 << 9, 1 << 10]),
            (vec![u64::MAX; 4], vec![6 << 10; 4]),
            ([vec![9; 3], vec![100; 16]].concat(), [vec![0; 3], vec![100; 16]].concat()),
        ] {
            assert_eq!(output_caps(&sizes), want, "{sizes:?}");
        }
    }

    proptest! {
        #[test]
        fn output_caps_stay_within_the_total(sizes in proptest::collection::vec(0_u64..60_000, 0..40)) {
            let rooms = output_caps(&sizes);
            prop_assert_eq!(rooms.len(), sizes.len());
            prop_assert!(rooms.iter().sum::<usize>() <= OUTPUT_BYTES);
            // What was read for its share is shown completely.
            let read: Vec<u64> = rooms.iter().map(|room| *room as u64).collect();
            prop_assert_eq!(super::output_caps(&read), rooms);
        }
    }

    #[test]
    fn both_ends_of_a_text() {
        let ends = |start, end, unread| OutputEnds { start, end, unread };
        for (whole, room, want) in [
            (OutputEnds::whole("abcdef"), 6, ends("abcdef", "", 0)),
            (OutputEnds::whole("abcdef"), 5, ends("ab", "def", 1)),
            (OutputEnds::whole("ääää"), 5, ends("ä", "ä", 4)),
            (OutputEnds::whole("abc"), 0, ends("", "", 3)),
            (ends("ab", "yz", 9), 4, ends("ab", "yz", 9)),
            (ends("ab", "yz", 9), 2, ends("a", "z", 11)),
        ] {
            assert_eq!(whole.truncated_to(room), want, "{whole:?} {room}");
        }
    }
}
