//! What the engine does when its rooms work together, tried on real programs in temporary folders.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod crash;
mod git;
mod hostile;
mod model;
mod stuck;
mod support;
mod traces;
#[cfg(target_os = "linux")]
mod way_out;
