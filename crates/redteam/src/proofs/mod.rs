//! Attacks proofs: changes of a project that make its check succeed without the work.
//!
//! Each is committed in a small project and checked twice in fresh sandboxes: as a run would, where it must not be
//! believed, and as a plain command, where it must work.

mod arena;
mod case;
mod cases;
mod projects;
mod run;

pub use case::{ProofCase, ProofPayload};
pub use run::{ProofTarget, cases, run, skip};
