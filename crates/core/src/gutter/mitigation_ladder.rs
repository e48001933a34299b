//! Chooses what to try when a run goes in circles, one rung for every consecutive gutter verdict.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::LoopScore;

/// One mitigation, or the end of the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[schemars(rename = "Rung")]
pub enum LadderRung {
    /// A fresh session with the reason in its prompt.
    Rotate,
    /// The fallback profile.
    Fallback,
    /// A diagnosis by the doctor profile.
    Diagnose,
    /// Wait for the user.
    Pause,
    /// End the run as `failed: gutter`.
    GiveUp,
}

impl LadderRung {
    pub const ALL: [Self; 5] = [Self::Rotate, Self::Fallback, Self::Diagnose, Self::Pause, Self::GiveUp];

    /// Returns the serialized tag.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Rotate => "rotate",
            Self::Fallback => "fallback",
            Self::Diagnose => "diagnose",
            Self::Pause => "pause",
            Self::GiveUp => "give-up",
        }
    }
}

impl fmt::Display for LadderRung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Why a mitigation was applied.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MitigationCause {
    /// The run goes in circles.
    #[default]
    Gutter,
    /// A provider did not answer. Another profile continues the open iteration; the next one uses the first again.
    Provider,
}

impl MitigationCause {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
    pub(crate) fn is_gutter(&self) -> bool {
        *self == Self::Gutter
    }
}

/// Returns why a rung is applied, for the next session: how many times it happened and what was observed.
pub fn mitigation_reason(streak: u32, score: Option<&LoopScore>) -> String {
    let mut why = match streak {
        0 | 1 => "the last iterations went in circles".to_owned(),
        2 => "the last iterations went in circles, for the second time without progress".to_owned(),
        3 => "the last iterations went in circles, for the third time without progress".to_owned(),
        times => format!("the last iterations went in circles, for the {times}th time without progress"),
    };
    // Without the letters of the arithmetic, which mean nothing to the reader of the prompt.
    let seen = score.iter().flat_map(|score| &score.evidence);
    let seen: Vec<&str> = seen.map(|line| line.split_once(": ").map_or(line.as_str(), |(_, seen)| seen)).collect();
    if !seen.is_empty() {
        why.push_str(": ");
        why.push_str(&seen.join("; "));
    }
    why
}

/// The default ladder.
pub const DEFAULT_LADDER: [LadderRung; 4] =
    [LadderRung::Rotate, LadderRung::Fallback, LadderRung::Diagnose, LadderRung::Pause];

/// The most rungs of a ladder.
pub const MAX_RUNGS: usize = 16;

/// The position of a run on its ladder.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct LadderPosition {
    /// Gutter verdicts since the last progress, this one included, even across resumes.
    pub verdicts: u32,
    /// Those of them that count for the ladder, which may start again after a pause for the user.
    pub climbed: u32,
}

impl LadderPosition {
    /// Counts one more verdict.
    pub fn count_verdict(&mut self) {
        self.verdicts = self.verdicts.saturating_add(1);
        self.climbed = self.climbed.saturating_add(1);
    }

    /// Starts the ladder again if the user resumes a run at its last rung, as long as the maximum is not reached.
    pub fn reset_on_resume(&mut self, ladder: &[LadderRung], fallback: Option<&str>, max: u32) {
        let left = usable_rungs(ladder, fallback).count() > usize::try_from(self.climbed).unwrap_or(usize::MAX);
        if !left && self.verdicts < max {
            self.climbed = 0;
        }
    }
}

/// Returns the rung for the last verdict.
///
/// Without a fallback profile its rung is skipped; a diagnosis always has a profile to use. Past the last rung the run
/// gives up once there are `max` verdicts; until then the last rung is tried again (rotation if there is none), so that
/// a short ladder does not reduce the number of attempts and a small maximum does not shorten the ladder.
pub fn next_rung(climb: LadderPosition, ladder: &[LadderRung], fallback: Option<&str>, max: u32) -> LadderRung {
    let at = usize::try_from(climb.climbed.saturating_sub(1)).unwrap_or(usize::MAX);
    match usable_rungs(ladder, fallback).nth(at) {
        Some(rung) => rung,
        None if climb.verdicts >= max => LadderRung::GiveUp,
        None => usable_rungs(ladder, fallback).last().unwrap_or(LadderRung::Rotate),
    }
}

fn usable_rungs(ladder: &[LadderRung], fallback: Option<&str>) -> impl Iterator<Item = LadderRung> {
    ladder.iter().copied().filter(move |rung| *rung != LadderRung::Fallback || fallback.is_some())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the rungs of consecutive verdicts, by their first letters; the user resumes the run after every pause.
    #[track_caller]
    fn check(ladder: &[LadderRung], fallback: Option<&str>, max: u32, want: &str) {
        let mut climb = LadderPosition::default();
        let mut climbed = String::new();
        for _ in 0..want.len() {
            climb.count_verdict();
            let rung = next_rung(climb, ladder, fallback, max);
            climbed.extend(format!("{rung:?}").chars().next());
            if rung == LadderRung::Pause {
                climb.reset_on_resume(ladder, fallback, max);
            }
        }
        assert_eq!(climbed, want, "{ladder:?} {fallback:?} {max}");
    }

    #[test]
    fn rungs_of_consecutive_verdicts() {
        use LadderRung::{Diagnose, Fallback, GiveUp, Pause, Rotate};
        let some = Some("strong");
        check(&DEFAULT_LADDER, some, 3, "RFDPGG");
        check(&DEFAULT_LADDER, None, 3, "RDPGGG");
        check(&DEFAULT_LADDER, some, 0, "RFDPGG");
        check(&[Rotate], some, 3, "RRGGGG");
        check(&[Rotate, GiveUp], some, 9, "RGGGGG");
        check(&[Fallback], None, 3, "RRGGGG");
        check(&[], some, 2, "RGGGGG");
        // A resume starts the whole ladder again, until the maximum is reached.
        check(&DEFAULT_LADDER, some, 4, "RFDPGG");
        check(&DEFAULT_LADDER, some, 5, "RFDPRFDPGG");
        check(&DEFAULT_LADDER, None, 5, "RDPRDPGG");
        check(&[Pause], some, 3, "PPPG");
        // A pause in the middle is a rung like any other.
        check(&[Rotate, Pause, Diagnose, Pause], some, 3, "RPDPGG");
        check(&[Pause, Rotate], some, 1, "PRGG");
    }

    #[test]
    fn no_verdict_is_the_first_rung() {
        assert_eq!(next_rung(LadderPosition::default(), &DEFAULT_LADDER, None, 3), LadderRung::Rotate);
        let high = LadderPosition { verdicts: u32::MAX, climbed: u32::MAX };
        assert_eq!(next_rung(high, &DEFAULT_LADDER, None, u32::MAX), LadderRung::GiveUp);
    }

    #[test]
    fn the_reason_names_count_and_evidence() {
        let score = LoopScore {
            evidence: vec!["A 0.5: `make test` failed: again".to_owned(), "B 0.3: nothing changed".to_owned()],
            ..LoopScore::default()
        };
        assert_eq!(mitigation_reason(1, None), "the last iterations went in circles");
        assert_eq!(
            mitigation_reason(2, Some(&score)),
            "the last iterations went in circles, for the second time without progress: `make test` failed: again; nothing changed"
        );
        assert_eq!(
            mitigation_reason(4, None),
            "the last iterations went in circles, for the 4th time without progress"
        );
    }

    #[test]
    fn names_match_the_serialized_form() {
        for rung in LadderRung::ALL {
            assert_eq!(serde_json::to_value(rung).unwrap(), rung.as_str());
        }
    }
}
