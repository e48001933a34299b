//! What the engine does when its rooms work together, tried on real programs in temporary folders.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod clock;
mod crash;
mod fallback;
mod faults;
mod git;
mod hostile;
mod lab;
mod model;
mod owed;
#[cfg(target_os = "linux")]
mod patience;
mod prompt;
mod replay;
mod stuck;
mod support;
mod traces;
mod unpriced;
#[cfg(target_os = "linux")]
mod way_out;
