//! The attacks that a sandbox must hold against, each with a proof that it would work where nothing stands in its way.
//!
//! A refusal is worth what its counterpart shows: every case runs its payload a second time where the wall in question is
//! missing (in a cage built without it, or on the host itself), and a case whose payload fails there too is *invalid*,
//! never held. All of it aims at files, sockets and processes the suite has made itself, in a folder of its own: a
//! sandbox that lets an attack through costs the host nothing. What only a proxy could refuse is tested beside the proxy.

#[cfg(target_os = "linux")]
mod arena;
#[cfg(target_os = "linux")]
mod case;
#[cfg(target_os = "linux")]
mod cases;
#[cfg(target_os = "linux")]
mod probe;
mod report;
#[cfg(target_os = "linux")]
mod run;
#[cfg(target_os = "linux")]
mod supervisor;
#[cfg(target_os = "linux")]
mod syscall_names;
#[cfg(target_os = "linux")]
mod target;
#[cfg(not(target_os = "linux"))]
mod unsupported;

#[cfg(target_os = "linux")]
pub use case::SandboxAttack;
#[cfg(target_os = "linux")]
pub use probe::entry as probe_entry;
pub use report::{AttackArea, AttackReport, AttackVerdict, RedteamReport, is_selected};
#[cfg(target_os = "linux")]
pub use run::{cases, run, selects_any};
#[cfg(target_os = "linux")]
pub use target::RedteamTarget;
#[cfg(not(target_os = "linux"))]
pub use unsupported::{RedteamTarget, run, selects_any};
