//! Defines the audit log of a run: every decision of the egress proxy, one record per line, each line hash-chained to
//! the one before.
//!
//! Records, their chain and the verification of a file are here, without I/O: the engine writes the file and anchors
//! the head of its chain in the run's events.

mod chain;
mod record;
mod record_cap;
mod verify;

pub use chain::{AuditChain, AuditDamage, AuditFileEnd, AuditHead, AuditScanner, genesis};
pub use record::{AuditRecord, AuditRecordKind, FORMAT};
pub use record_cap::{AuditRecordCaps, AuditRecordClass, MAX_ALARMS, MAX_CREDENTIAL_USES, MAX_DENIED, MAX_OTHERS};
pub use verify::{AuditAnchor, AuditFault, AuditVerification, AuditVerifier};
