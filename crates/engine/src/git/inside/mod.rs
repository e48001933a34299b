//! Git in the sandbox, over `exec`: seeding the clone, looking at it, committing, going back, bundling it out.
//!
//! What these functions return was made by programs the agent may have changed: good for the loop's judgement, never a
//! proof. The proof is what the host imports and re-runs. Each function is one start in the sandbox, because every
//! start costs milliseconds of every iteration.

mod commit;
mod seed;
mod snapshot;
mod start;
mod verified;
mod watch;

pub use commit::{Paths, commit, revert_paths};
pub use seed::{Bundled, KeepState, Seed, Way, bundle, seed};
pub use snapshot::{Snapshot, restore};
pub use verified::{child_of, clear, commit_reverted, commit_verified, diff, forget_index, stand_on, unlock};
pub use watch::{Look, watch};
