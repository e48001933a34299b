//! Git in the sandbox, over `exec`: seeding the clone, looking at it, committing, going back, bundling it out.
//!
//! What these functions return was made by programs the agent may have changed: good for the loop's judgement, never a
//! proof. The proof is what the host imports and re-runs. Each function is one start in the sandbox, because every
//! start costs milliseconds of every iteration.

mod commit;
mod ralph_commits;
mod script;
mod seed;
mod snapshot;
mod status;

pub use commit::{CommitPaths, commit, revert_paths};
pub use ralph_commits::{
    attach_to_branch, commit_reverted, commit_verified, diff, discard_status_index, head_if_child_of, remove_non_file,
    remove_stale_locks,
};
pub use seed::{BundleOutcome, BundleRequest, CloneSeed, StateFiles, bundle, seed};
pub use snapshot::{CloneSnapshot, restore};
pub use status::{CloneStatus, read_status};
