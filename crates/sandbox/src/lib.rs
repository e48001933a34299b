//! A place to run commands that cannot hurt the host.
//!
//! One contract, several backends that differ in [`Capabilities`] and never in meaning. What can be built from `exec`
//! (git, checks) is not here: it is written once, above, over `&dyn Sandbox`.

pub mod conformance;
mod contract;
#[cfg(target_os = "linux")]
pub mod embedded;
mod error;
mod exec;
pub mod files;
pub mod image;
pub mod local;
mod pump;
#[cfg(target_os = "linux")]
pub mod redteam;
mod shelf;
mod token;
pub mod toolchain;

pub use contract::{
    Backend, Capabilities, Entry, EntryKind, Isolation, Label, Layer, Listed, Network, Prune, Pruned, Resources,
    Sandbox, Spec,
};
pub use error::Error;
pub use exec::{Capture, Exec, Exit, Kept, Limit, Output, Sink, Status, Stream, capture};
