//! Attacks the cage and the egress proxy, and proves for each refusal that the same attack works without it.
//!
//! [`cage`] attacks what the kernel has to refuse, [`egress`] what only the proxy can refuse. Both report into one
//! [`RedteamReport`]. What every backend has to do right, without an attacker, is `ralph_sandbox::conformance`.

#[cfg(target_os = "linux")]
pub mod cage;
#[cfg(target_os = "linux")]
mod case;
#[cfg(target_os = "linux")]
pub mod egress;
#[cfg(target_os = "linux")]
mod report;

#[cfg(target_os = "linux")]
pub use case::{AttackCase, AttackPayload};
#[cfg(target_os = "linux")]
pub use report::{AttackArea, AttackReport, AttackVerdict, RedteamReport};

/// Becomes one of the programs that attack from inside a sandbox, if this process was started as one. Call it early in
/// `main`, before any thread starts.
#[cfg(target_os = "linux")]
pub fn payload_entry() -> Option<std::process::ExitCode> {
    cage::probe_entry().or_else(egress::attack_client_entry)
}
