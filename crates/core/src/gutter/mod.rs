//! Going in circles: what an iteration left behind, how stuck that looks, and what to try next.
//!
//! Pure arithmetic over a window of samples. Who gathers the samples, writes the event and climbs the ladder is the
//! engine's business.

mod explain;
mod ladder;
mod normalise;
mod score;
mod test_counts;

pub use explain::{ScoreExplanation, explain};
pub use ladder::{
    DEFAULT_LADDER, LadderPosition, LadderRung, MAX_RUNGS, MitigationCause, mitigation_reason, next_rung,
};
pub use normalise::{SIGNATURE_CHARS, normalise};
pub use score::{
    FailureSignature, GUTTER_THRESHOLD, IterationSample, LoopScore, ScorePart, WINDOW, score, score_parts,
};
pub use test_counts::TestCounts;
