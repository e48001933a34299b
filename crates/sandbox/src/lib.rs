//! A place to run commands that cannot hurt the host.
//!
//! One contract, several backends that differ in [`BackendCapabilities`] and never in meaning. What can be built from `exec`
//! (git, checks) is not here: it is written once, above, over `&dyn Sandbox`.

mod command_pipes;
pub mod conformance;
mod contract;
#[cfg(target_os = "linux")]
pub mod embedded;
mod error;
mod exec;
pub mod files;
pub mod image;
pub mod local;
mod sandbox_dirs;
mod token;
pub mod toolchain;

pub use contract::{
    Backend, BackendCapabilities, DirectoryEntry, DirectoryEntryKind, HostLayer, IsolationLevel, PruneResult,
    PruneRule, Sandbox, SandboxLabel, SandboxLimits, SandboxNetwork, SandboxSpec, SandboxSummary,
};
pub use error::Error;
pub use exec::{
    ExecExit, ExecOutput, ExecRequest, ExecStatus, HeadTailBuffer, OutputCapture, OutputSink, OutputStream,
    ResourceLimit, capture,
};
