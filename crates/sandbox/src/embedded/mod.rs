//! Implements the `embedded` backend: cages made of this kernel's namespaces, without a daemon, root or other programs.
//!
//! This module holds the supervisor's half, which runs in ralph's process: it plans a cage
//! (`CagePlan`), starts it, runs commands in it, watches what it takes of the host, and leaves
//! nothing behind. The half that runs inside is `launcher`, the only module of the workspace with unsafe code.
//! SECURITY.md states what it guarantees.

mod backend;
mod cage;
mod cage_build_failure;
mod cage_owner_processes;
mod cgroup;
mod command;
mod disk_usage;
mod disk_watch;
mod egress_sockets;
mod etc_copy;
mod host_requirements;
mod launcher;
mod launcher_process;
mod launcher_protocol;
mod layout;
mod plan;
mod sandbox;
mod snapshots;
mod toolchains;
mod transient_retry;
mod visible_host_paths;

use std::process::ExitCode;

pub use crate::isolation_mechanism::IsolationMechanism;
pub use backend::{EmbeddedBackend, EmbeddedOptions};

/// The name of the backend.
pub const NAME: &str = "embedded";

/// Where the parts of a sandbox are inside.
pub const WORKSPACE: &str = "/workspace";
pub const HOME: &str = "/home/agent";
const EXCHANGE: &str = "/exchange";

/// Becomes the launcher or the disk usage counter, if this process was started as one. Must be the first call in
/// `main`, before any thread starts.
pub fn launcher_entry() -> Option<ExitCode> {
    let name = std::env::args_os().next()?;
    match name.to_str()? {
        launcher::LAUNCHER_NAME => Some(launcher::main()),
        launcher::COUNTER_NAME => Some(launcher::count()),
        _ => None,
    }
}
