//! Runs git on both sides of the sandbox.
//!
//! [`user_repo`] reads the user's repository, [`bare_repo`] is the host-owned repository of a run through which
//! everything passes in and out, [`in_sandbox`] works in the sandbox over `exec`. The host never runs git in a directory
//! an agent can write: work comes out as one bundle file and is checked in `import` before a single object of it is
//! kept. Pull requests are not here.

mod auto_executed_files;
pub mod bare_repo;
mod bundle;
mod clone;
mod commit_message;
mod error;
mod import;
mod import_findings;
mod import_reader;
pub mod in_sandbox;
mod include_dirty;
mod object_db;
mod object_facts;
mod object_quarantine;
mod publish;
mod raw_diff;
mod subprocess;
mod transfer;
pub mod user_repo;
mod validated_names;

pub use bare_repo::BareRepo;
pub use clone::{clone, same_address};
pub(crate) use commit_message::compose_message;
pub use commit_message::{CommitStamp, CommitTrailer};
pub use error::Error;
pub use import::{ImportLimits, ImportOutcome, ImportQuantity, ImportRefusal, ImportRules, SecretScan};
pub use import_findings::{FindingKind, ImportFinding};
pub use include_dirty::{DirtyCommit, SkippedDirtyFile};
pub use object_db::{CommitLogEntry, DiffLimits, DiffStat, DiffText, ObjectDb, TreeEntry};
pub use publish::{GitAuth, GitRemote, PushOutcome};
pub use raw_diff::{FileDiffStat, PathChange};
pub use subprocess::GitProgram;
pub use transfer::{diff, diff_range, diffstat};
pub(crate) use transfer::{globs, import_from_sandbox, seed_sandbox, stamp, trailers};
pub use user_repo::{BaseCommit, UserRepo};
pub use validated_names::{ObjectFormat, RunName, Sha};
