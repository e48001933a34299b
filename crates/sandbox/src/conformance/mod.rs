//! The test suite that every backend must pass.
//!
//! It uses only the backend traits and ordinary programs inside the sandbox (`sh`, coreutils, `git`), so it also
//! works with a remote backend. It creates and destroys sandboxes with its own names and touches no others. It must
//! be safe to run against a broken backend, so every forbidden write targets a victim that the suite created, never a
//! system file: a backend that lets it through costs nothing but the case. What only one backend guarantees is tested
//! next to that backend.

mod exec;
mod files;
mod fixture;
mod host_layers;
mod lifecycle;
mod processes;
mod suite;

pub use suite::{CaseResult, ConformanceOutcome, suite};
