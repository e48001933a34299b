//! A diagnosis: what a doctor is told of a run that goes in circles, what it may answer, and what becomes of that.
//!
//! All of it is judgement over texts. Who asks the doctor, pays for it and writes its report down is the engine.

mod book;
mod fold;
mod progress;
mod proposal;
mod question;
mod reply;
mod report;
mod revise;

pub use book::{Book, Numbered};
pub use progress::{ANSWERS, Diagnoses, Doing, LOST, Under};
pub use proposal::{Proposal, proposals};
pub use question::{Facts, Past, WHOLE_BYTES, question};
pub use reply::{Diagnosis, Guardrail, Invalid, MAX_GUARDRAILS, Suggestion, parse, schema};
pub use report::{nothing, report};
pub use revise::{Refusal, Revised, Who, patched, revise};
