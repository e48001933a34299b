//! The audit file of a run: what was decided at its doors, one record a line, each line chained to the one before.
//!
//! Records, their chain and the judgement whether a file is as it was written are here. Nothing is written or read
//! here: the engine keeps the file and anchors the head of its chain in the run's events.

mod chain;
mod record;
mod record_cap;
mod verify;

pub use chain::{AuditChain, AuditDamage, AuditFileEnd, AuditHead, AuditScanner, genesis};
pub use record::{AuditRecord, AuditRecordKind, FORMAT};
pub use record_cap::{AuditRecordCaps, AuditRecordClass, MAX_ALARMS, MAX_CREDENTIAL_USES, MAX_DENIED, MAX_OTHERS};
pub use verify::{AuditAnchor, AuditFault, AuditVerification, AuditVerifier};
