//! The `embedded` backend: a cage made of this kernel's namespaces, with no daemon, no root and no other program.
//!
//! The supervisor's half is here: what a cage is to be ([`Plan`](plan::Plan)), starting it, running commands in it,
//! watching what it takes of the host, and leaving nothing behind. The half that runs inside is `launcher`, the only room
//! of the house with unsafe code. SECURITY.md tells what is claimed for it.

mod backend;
mod cgroup;
mod command;
mod count;
mod disk;
mod door;
mod etc;
mod explain;
mod launcher;
mod layers;
mod layout;
mod live;
mod owners;
mod plan;
mod sandbox;
mod spawn;
mod system;
mod tools;
mod wire;

use std::process::ExitCode;

pub use backend::{Embedded, Options, User};
pub use door::{Door, Doors, Keeper};
pub use explain::{Explained, OLDEST, Settings, explain};
pub use plan::Wall;

/// Where the parts of a sandbox are inside.
pub const WORKSPACE: &str = "/workspace";
pub const HOME: &str = "/home/agent";
const EXCHANGE: &str = "/exchange";

/// Returns the version of Landlock this kernel speaks, 0 for none.
pub fn landlock_version() -> u8 {
    launcher::landlock_version()
}

/// Becomes the launcher or the counter, if this process was started as one. To be called first of all in `main`, before any thread.
pub fn entry() -> Option<ExitCode> {
    let name = std::env::args_os().next()?;
    match name.to_str()? {
        launcher::NAME => Some(launcher::main()),
        launcher::COUNTER => Some(launcher::count()),
        _ => None,
    }
}
