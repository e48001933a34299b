//! Going in circles: what an iteration left behind, how stuck that looks, and what to try next.
//!
//! Pure arithmetic over a window of samples. Who gathers the samples, writes the event and climbs the ladder is the
//! engine's business.

mod counts;
mod explain;
mod ladder;
mod normalise;
mod score;

pub use counts::TestCounts;
pub use explain::{Explained, explain};
pub use ladder::{Cause, Climb, DEFAULT_LADDER, RUNGS, Rung, next_rung, why};
pub use normalise::{SIGNATURE_CHARS, normalise};
pub use score::{GUTTER, Part, Sample, Score, Signature, WINDOW, parts, score};
