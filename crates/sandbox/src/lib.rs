//! A place to run commands that cannot hurt the host.
//!
//! One contract, several backends that differ in [`Capabilities`] and never in meaning. What can be built from `exec`
//! (git, checks) is not here: it is written once, above, over `&dyn Sandbox`.

pub mod conformance;
mod contract;
mod error;
mod exec;
pub mod files;
pub mod image;
pub mod local;
mod token;

pub use contract::{Backend, Capabilities, Entry, EntryKind, Isolation, Label, Listed, Prune, Pruned, Sandbox, Spec};
pub use error::Error;
pub use exec::{Capture, Exec, Exit, Kept, Output, Sink, Status, Stream, capture};
