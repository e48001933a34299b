//! Attacks that a sandbox must hold against, each with a proof that it works without the mechanism that refuses it.
//!
//! A refusal alone proves nothing: every case runs its payload a second time where the mechanism in question is
//! missing (in a cage built without it, or on the host itself), and a case whose payload fails there too is
//! *invalid*, never held. All attacks target files, sockets and processes that the suite created in its own folder,
//! so a sandbox that lets an attack through does not harm the host. What only a proxy can refuse is tested with the
//! proxy.

mod arena;
mod attacked_backend;
mod case;
mod cases;
mod disposable_supervisor;
mod probe;
mod run;
mod syscall_names;

pub use attacked_backend::RedteamTarget;
pub use case::{SandboxAttack, SandboxPayload};
pub use probe::entry as probe_entry;
pub use run::{cases, run};
