//! The `embedded` backend: a cage made of this kernel's namespaces, with no daemon, no root and no other program.
//!
//! The supervisor's half is here: what a cage is to be ([`Plan`](plan::Plan)), starting it, running commands in it,
//! watching what it takes of the host, and leaving nothing behind. The half that runs inside is `launcher`, the only room
//! of the house with unsafe code. SECURITY.md tells what is claimed for it.

mod backend;
mod build_failure;
mod cage;
mod cage_owners;
mod cgroup;
mod checks;
mod command;
mod disk_usage;
mod disk_watch;
mod egress_sockets;
mod etc_copy;
mod host_system;
mod launcher;
mod launcher_process;
mod launcher_protocol;
mod layout;
mod plan;
mod sandbox;
mod snapshots;
mod toolchains;

use std::process::ExitCode;

pub use crate::isolation_mechanism::IsolationMechanism;
pub use backend::{EmbeddedBackend, EmbeddedOptions};

/// The name of the backend.
pub const NAME: &str = "embedded";

/// Where the parts of a sandbox are inside.
pub const WORKSPACE: &str = "/workspace";
pub const HOME: &str = "/home/agent";
const EXCHANGE: &str = "/exchange";

/// Becomes the launcher or the counter, if this process was started as one. To be called first of all in `main`, before any thread.
pub fn launcher_entry() -> Option<ExitCode> {
    let name = std::env::args_os().next()?;
    match name.to_str()? {
        launcher::LAUNCHER_NAME => Some(launcher::main()),
        launcher::COUNTER_NAME => Some(launcher::count()),
        _ => None,
    }
}
