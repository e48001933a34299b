//! The one suite that every backend must pass, whatever it is made of.
//!
//! It uses only the contract and ordinary programs inside the sandbox (`sh`, coreutils, `git`), so it can be pointed at a
//! backend that runs elsewhere. It makes and destroys sandboxes of its own names and touches no others. It is made to meet
//! broken backends, so every forbidden write aims at a victim of the suite's own, never at a file of the system: a
//! backend that lets it through must cost nothing but the case. What only one backend promises is tested beside it.

mod exec;
mod files;
mod fixture;
mod layers;
mod lifecycle;
mod processes;
mod suite;

pub use suite::{CaseResult, ConformanceOutcome, suite};
