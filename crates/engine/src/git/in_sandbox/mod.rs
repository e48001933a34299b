//! Runs git in the sandbox, over `exec`: seeds the clone, reads its status, commits, restores, bundles it out.
//!
//! The results come from programs that the agent may have changed: good enough for the loop's decisions, never a
//! proof. The proof is what the host imports and runs again. Each function starts one process in the sandbox, because
//! every start costs milliseconds in every iteration.

mod commit;
mod ralph_commits;
mod script;
mod seed;
mod snapshot;
mod status;

pub use commit::{CommitPaths, commit, revert_paths};
pub use ralph_commits::{
    attach_to_branch, commit_reverted, commit_verified, diff, discard_status_index, head_if_child_of, remove_non_file,
    remove_paths, remove_stale_locks,
};
pub use seed::{BundleOutcome, BundleRequest, CloneSeed, StateFiles, bundle, seed};
pub use snapshot::{CloneSnapshot, restore};
pub use status::{CloneStatus, read_status};
