//! Runs commands in sandboxes that cannot harm the host.
//!
//! Defines one contract for several backends, which differ in their [`BackendCapabilities`] and never in meaning.
//! Anything that can be built from `exec` (git, checks) is not here: the crates above implement it once, over `&dyn
//! Sandbox`.

mod backend_traits;
mod command_pipes;
pub mod conformance;
mod egress;
#[cfg(target_os = "linux")]
pub mod embedded;
mod error;
mod exec;
pub mod files;
pub mod image;
mod isolation_mechanism;
pub mod local;
pub mod platform;
mod random_name;
mod sandbox_dirs;
pub mod toolchain;

pub use backend_traits::{
    Backend, BackendCapabilities, BackendCheck, BackendCheckStatus, DirectoryEntry, DirectoryEntryKind, FileStamp,
    HostLayer, PruneResult, PruneRule, Sandbox, SandboxLabel, SandboxLimits, SandboxNetwork, SandboxSpec,
    SandboxSummary,
};
pub use egress::{EgressServer, EgressSockets, EgressSupport, ServeGuard};
pub use error::Error;
pub use exec::{
    ExecExit, ExecOutput, ExecRequest, ExecStatus, HeadTailBuffer, OutputCapture, OutputSink, OutputStream,
    ResourceLimit, capture,
};
pub use isolation_mechanism::IsolationMechanism;
pub use ralph_core::config::IsolationLevel;
