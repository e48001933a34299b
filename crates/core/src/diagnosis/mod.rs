//! Diagnoses a run that goes in circles: builds the question to the doctor, parses its answer and derives proposals.
//!
//! All of it works on texts. The engine calls the doctor, charges the call and writes the report.

mod apply_revision;
mod progress;
mod proposal;
mod proposal_list;
mod question;
mod reply;
mod report;
mod task_revision;

pub use progress::{DiagnosisProgress, DiagnosisStep, MAX_INVALID_ANSWERS, MAX_LOST_CALLS, OpenDiagnosis};
pub use proposal::{Proposal, proposals};
pub use proposal_list::{NumberedProposal, ProposalList};
pub use question::{DiagnosisFacts, MAX_QUESTION_BYTES, PastIteration, question};
pub use reply::{Diagnosis, Guardrail, InvalidDiagnosis, MAX_GUARDRAILS, ProfileSuggestion, parse, schema};
pub use report::{failure_report, report};
pub use task_revision::{RevisedTask, RevisionRefusal, RevisionStrictness, apply_task_diff, revise};
