//! What to try when a run goes in circles, one rung for every gutter verdict in a row.

use serde::{Deserialize, Serialize};

use super::Score;

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

impl Rung {
    /// Returns the tag it is written with.
    pub fn word(self) -> &'static str {
        match self {
            Self::Rotate => "rotate",
            Self::Fallback => "fallback",
            Self::Diagnose => "diagnose",
            Self::Pause => "pause",
            Self::GiveUp => "give-up",
        }
    }
}

/// What something was tried for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// The run goes in circles.
    #[default]
    Gutter,
    /// A provider gave no answer. Another profile goes on with the open iteration; the next one asks the first again.
    Provider,
}

impl Cause {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
    pub(crate) fn is_gutter(&self) -> bool {
        *self == Self::Gutter
    }
}

/// Says why a rung is climbed, for the session that comes after it: which time it is and what was seen.
pub fn why(streak: u32, score: Option<&Score>) -> String {
    let mut why = match streak {
        0 | 1 => "the last iterations went in circles".to_owned(),
        2 => "the last iterations went in circles, for the second time without progress".to_owned(),
        3 => "the last iterations went in circles, for the third time without progress".to_owned(),
        times => format!("the last iterations went in circles, for the {times}th time without progress"),
    };
    // Without the letters of the arithmetic, which mean nothing to whoever reads this.
    let seen = score.iter().flat_map(|score| &score.evidence);
    let seen: Vec<&str> = seen.map(|line| line.split_once(": ").map_or(line.as_str(), |(_, seen)| seen)).collect();
    if !seen.is_empty() {
        why.push_str(": ");
        why.push_str(&seen.join("; "));
    }
    why
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
    fn whoever_comes_next_is_told_why() {
        let score = Score {
            evidence: vec!["A 0.5: `make test` failed: again".to_owned(), "B 0.3: nothing changed".to_owned()],
            ..Score::default()
        };
        assert_eq!(why(1, None), "the last iterations went in circles");
        assert_eq!(
            why(2, Some(&score)),
            "the last iterations went in circles, for the second time without progress: `make test` failed: again; nothing changed"
        );
        assert_eq!(why(4, None), "the last iterations went in circles, for the 4th time without progress");
    }

    #[test]
    fn names() {
        for rung in [Rung::Rotate, Rung::Fallback, Rung::Diagnose, Rung::Pause, Rung::GiveUp] {
            assert_eq!(serde_json::to_value(rung).unwrap(), rung.word());
        }
    }
}
