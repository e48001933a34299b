//! The attacks that a sandbox must hold against, each with a proof that it would work where nothing stands in its way.
//!
//! A refusal is worth what its counterpart shows: every case runs its payload a second time where the wall in question is
//! missing (in a cage built without it, or on the host itself), and a case whose payload fails there too is *invalid*,
//! never held. All of it aims at files, sockets and processes the suite has made itself, in a folder of its own: a
//! sandbox that lets an attack through costs the host nothing. What only a proxy could refuse is tested beside the proxy.

mod arena;
mod case;
mod cases;
mod probe;
mod run;
mod supervisor;
mod syscall_names;
mod target;

pub use case::{SandboxAttack, SandboxPayload};
pub use probe::entry as probe_entry;
pub use run::{cases, run};
pub use target::RedteamTarget;
