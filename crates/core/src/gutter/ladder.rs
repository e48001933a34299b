//! What to try when a run goes in circles, one rung for every gutter verdict in a row.

use serde::{Deserialize, Serialize};

/// One thing to try, or the end of trying.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rung {
    /// A fresh session that is told why.
    Rotate,
    /// The fallback profile.
    Fallback,
    /// A diagnosis by the doctor profile.
    Diagnose,
    /// Wait for a person.
    Pause,
    /// End the run as `failed: gutter`.
    GiveUp,
}

/// The ladder of a run that names no other.
pub const DEFAULT_LADDER: [Rung; 4] = [Rung::Rotate, Rung::Fallback, Rung::Diagnose, Rung::Pause];

/// Returns the rung for the `streak`-th gutter verdict in a row, counted from one.
///
/// Rungs whose profile is missing are skipped. Above the last rung the run gives up once `max_consecutive` is reached;
/// until then the last rung is tried again (rotation if there is none), so neither a short ladder nor a small maximum
/// takes anything from the other.
pub fn next_rung(
    streak: u32,
    ladder: &[Rung],
    fallback_available: bool,
    doctor_available: bool,
    max_consecutive: u32,
) -> Rung {
    let usable = |rung: &&Rung| match rung {
        Rung::Fallback => fallback_available,
        Rung::Diagnose => doctor_available,
        Rung::Rotate | Rung::Pause | Rung::GiveUp => true,
    };
    let at = usize::try_from(streak.saturating_sub(1)).unwrap_or(usize::MAX);
    let mut usable = ladder.iter().filter(usable);
    match usable.clone().nth(at) {
        Some(rung) => *rung,
        None if streak >= max_consecutive => Rung::GiveUp,
        None => usable.next_back().copied().unwrap_or(Rung::Rotate),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The rungs of the first verdicts in a row, by their first letters.
    #[track_caller]
    fn check(ladder: &[Rung], available: &str, max: u32, want: &str) {
        let climbed: String = (1..=6)
            .map(|streak| next_rung(streak, ladder, available.contains('F'), available.contains('D'), max))
            .map(|rung| format!("{rung:?}").chars().next().unwrap())
            .collect();
        assert_eq!(climbed, want, "{ladder:?} {available} {max}");
    }

    #[test]
    fn climbs() {
        check(&DEFAULT_LADDER, "FD", 3, "RFDPGG");
        check(&DEFAULT_LADDER, "F", 3, "RFPGGG");
        check(&DEFAULT_LADDER, "D", 3, "RDPGGG");
        check(&DEFAULT_LADDER, "", 3, "RPGGGG");
        check(&DEFAULT_LADDER, "", 4, "RPPGGG");
        check(&DEFAULT_LADDER, "FD", 0, "RFDPGG");
        check(&[Rung::Rotate], "FD", 3, "RRGGGG");
        check(&[Rung::Diagnose, Rung::Rotate], "", 5, "RRRRGG");
        check(&[Rung::Rotate, Rung::GiveUp], "FD", 9, "RGGGGG");
        check(&[Rung::Fallback], "", 3, "RRGGGG");
        check(&[], "FD", 2, "RGGGGG");
    }

    #[test]
    fn no_verdict_is_the_first_rung() {
        assert_eq!(next_rung(0, &DEFAULT_LADDER, true, true, 3), Rung::Rotate);
        assert_eq!(next_rung(u32::MAX, &DEFAULT_LADDER, true, true, u32::MAX), Rung::GiveUp);
    }

    #[test]
    fn names() {
        let names = serde_json::to_string(&[Rung::Rotate, Rung::GiveUp]).unwrap();
        assert_eq!(names, r#"["rotate","give-up"]"#);
    }
}
