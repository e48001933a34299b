//! Detects runs that go in circles: samples of iterations, a loop score, and what to try next.
//!
//! Pure arithmetic over a window of samples. The engine collects the samples, writes the event and applies the rungs of
//! the ladder.

mod explain;
mod mitigation_ladder;
mod normalise;
mod score;
mod test_counts;

pub use explain::{ScoreExplanation, explain};
pub use mitigation_ladder::{
    DEFAULT_LADDER, LadderPosition, LadderRung, MAX_RUNGS, MitigationCause, mitigation_reason, next_rung,
};
pub use normalise::{SIGNATURE_CHARS, normalise};
pub use score::{
    FailureSignature, GUTTER_THRESHOLD, IterationSample, LoopScore, ScorePart, WINDOW, score, score_parts,
};
pub use test_counts::TestCounts;
