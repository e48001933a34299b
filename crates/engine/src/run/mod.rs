//! One run as an actor: it asks [`ralph_core::decide::next`] what to do, does it, and writes down that it was done.

mod act;
mod adopt;
mod audited;
mod begin;
mod call;
mod close;
mod closing;
mod controls;
mod conversation;
mod damage;
mod diagnose;
mod excerpts;
mod files;
mod hearing;
mod judges;
mod last_actions;
mod owed;
mod prepare;
mod prove;
mod publish;
mod refused;
mod resume;
mod rewind;
mod runner;
mod session;
mod way_out;

pub use adopt::{Origin, adopt, origin};
pub use begin::{Begin, Begun, baseline_of, begin};
pub use controls::at_rest;
pub use conversation::CONVERSATION;
pub use diagnose::proposals;
pub(crate) use prepare::{Role, discard, fresh};
pub use resume::{Raise, Recreate, resume};
pub use rewind::rewind;
pub use runner::{Keep, Runner, Stops};
pub(crate) use session::{Chosen, fits, misfit, provider};
