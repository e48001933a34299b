//! Going in circles: what an iteration left behind, how stuck that looks, and what to try next.
//!
//! Pure arithmetic over a window of samples. Who gathers the samples, writes the event and climbs the ladder is the
//! engine's business.

mod counts;
mod ladder;
mod normalise;
mod score;

pub use counts::TestCounts;
pub use ladder::{DEFAULT_LADDER, Rung, next_rung};
pub use normalise::{SIGNATURE_CHARS, normalise};
pub use score::{GUTTER, Sample, Score, Signature, WINDOW, score};
