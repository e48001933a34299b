//! Attacks the cage, the egress proxy and proofs, and proves for each refusal that the same attack works without it.
//!
//! [`cage`] attacks what the kernel has to refuse, [`egress`] what only the proxy can refuse, [`proofs`] what a check may
//! not believe. All report into one [`RedteamReport`]. What every backend must do correctly without an attacker is tested by
//! `ralph_sandbox::conformance`.

#[cfg(target_os = "linux")]
pub mod cage;
#[cfg(target_os = "linux")]
mod case;
#[cfg(target_os = "linux")]
pub mod egress;
#[cfg(target_os = "linux")]
pub mod proofs;
mod report;
mod suite;

#[cfg(target_os = "linux")]
pub use case::{AttackCase, AttackPayload};
pub use report::{AttackArea, AttackReport, AttackVerdict, RedteamReport};
pub use suite::{AttackRequest, payload_entry, run_suites, selects_any};
