//! Diagnoses a run that goes in circles: builds the question to the doctor, parses its answer and derives proposals.
//!
//! All of it works on texts. The engine calls the doctor, charges the call and writes the report.

mod progress;
mod proposal;
mod proposal_list;
mod question;
mod reply;
mod report;
mod revise;
mod task_edit;

pub use progress::{DiagnosisProgress, DiagnosisStep, MAX_INVALID_ANSWERS, MAX_LOST_CALLS, OpenDiagnosis};
pub use proposal::{Proposal, proposals};
pub use proposal_list::{NumberedProposal, ProposalList};
pub use question::{DiagnosisFacts, MAX_QUESTION_BYTES, PastIteration, question};
pub use reply::{Diagnosis, Guardrail, InvalidDiagnosis, MAX_GUARDRAILS, ProfileSuggestion, parse, schema};
pub use report::{failure_report, report};
pub use revise::{RevisedTask, RevisionRefusal, RevisionStrictness, apply_task_diff, revise};
