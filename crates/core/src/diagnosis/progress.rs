//! Tracks the diagnoses of a run as a fold of its events, and returns the next step of the one under way.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::event::ModelCallOutcome;

/// How many invalid answers a doctor may give: one, and one more after it was told what was wrong.
pub const MAX_INVALID_ANSWERS: usize = 2;

/// The number of lost calls after which a diagnosis is given up, because its cost must stay limited.
pub const MAX_LOST_CALLS: u32 = 3;

/// The state of a run's diagnoses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DiagnosisProgress {
    /// The one that was requested and is not written yet.
    pub under: Option<OpenDiagnosis>,
    /// How many were written, and after which iteration the last one was.
    pub written: u32,
    pub after: Option<u32>,
    /// How many proposals they made; the next one gets the number after that.
    pub proposals: u32,
    /// The first proposal number of every diagnosis that made proposals.
    pub starts: Vec<u32>,
    /// The proposals that were applied.
    pub applied: BTreeSet<u32>,
    /// Proposals that the task allows to apply without asking.
    pub due: BTreeSet<u32>,
}

/// A diagnosis under way.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct OpenDiagnosis {
    /// Calls made so far, lost ones included.
    pub calls: u32,
    /// Why each answer so far was not valid.
    pub invalid: Vec<String>,
    /// The last call returned a diagnosis, which is not written yet.
    pub answered: bool,
}

/// The next step of a diagnosis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DiagnosisStep {
    /// Ask the doctor; `reask` names what was wrong with its last answer.
    Call { call: u32, reask: Option<String> },
    /// Write the diagnosis of this call.
    Write { call: u32 },
    /// Record why there is no diagnosis.
    GiveUp { why: String },
}

impl OpenDiagnosis {
    /// Returns the next step.
    pub fn next_step(&self) -> DiagnosisStep {
        let lost = self.calls.saturating_sub(u32::try_from(self.invalid.len()).unwrap_or(u32::MAX));
        if self.answered {
            DiagnosisStep::Write { call: self.calls.saturating_sub(1) }
        } else if self.invalid.len() >= MAX_INVALID_ANSWERS {
            let error = self.invalid.last().map_or("", String::as_str);
            DiagnosisStep::GiveUp { why: format!("the doctor gave no valid answer: {error}") }
        } else if lost >= MAX_LOST_CALLS {
            DiagnosisStep::GiveUp { why: format!("{lost} calls to the doctor were lost") }
        } else {
            DiagnosisStep::Call { call: self.calls, reask: self.invalid.last().cloned() }
        }
    }

    fn record_call(&mut self, answer: &ModelCallOutcome) {
        self.calls = self.calls.saturating_add(1);
        match answer {
            ModelCallOutcome::Diagnosis { .. } => self.answered = true,
            ModelCallOutcome::Invalid { error } => self.invalid.push(error.to_string()),
            ModelCallOutcome::Actions { .. } | ModelCallOutcome::Lost | ModelCallOutcome::Through { .. } => (),
        }
    }
}

impl DiagnosisProgress {
    /// Records a request; a second request while a diagnosis is under way has no effect.
    pub fn request(&mut self) {
        self.under.get_or_insert_default();
    }

    /// Records a call outside an iteration: the doctor's, or an agent's call that was charged late.
    pub fn record_call(&mut self, answer: &ModelCallOutcome) {
        if matches!(answer, ModelCallOutcome::Through { .. }) {
            return;
        }
        self.under.get_or_insert_default().record_call(answer);
    }

    /// Records a written diagnosis, and what to apply without asking: nothing, these numbers, or, in an older run
    /// without them, its guardrails, which are the first `guardrails` proposals.
    pub fn record_written(&mut self, after: u32, proposals: u32, guardrails: u32, unasked: Option<&Vec<u32>>) {
        self.under = None;
        self.written = self.written.saturating_add(1);
        self.after = Some(after);
        let first = self.next_number();
        self.proposals = self.proposals.saturating_add(proposals);
        let made = first..self.next_number();
        if !made.is_empty() {
            self.starts.push(first);
        }
        match unasked.map(Vec::as_slice) {
            None => (),
            Some([]) => self.due.extend(made.take(usize::try_from(guardrails).unwrap_or(usize::MAX))),
            Some(numbers) => self.due.extend(numbers.iter().filter(|number| made.contains(number))),
        }
    }

    pub fn record_applied(&mut self, number: u32) {
        self.applied.insert(number);
        self.due.remove(&number);
    }

    /// Returns the number of the next proposal.
    pub fn next_number(&self) -> u32 {
        self.proposals.saturating_add(1)
    }

    /// Returns the proposals that are not applied yet, those of the newest diagnosis first.
    pub fn open_proposals(&self) -> impl Iterator<Item = u32> + '_ {
        let mut end = self.next_number();
        let of_one = self.starts.iter().rev().flat_map(move |start| *start..std::mem::replace(&mut end, *start));
        of_one.filter(|number| !self.applied.contains(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(answers: &[&'static str], want: &DiagnosisStep) {
        let mut diagnoses = DiagnosisProgress::default();
        diagnoses.request();
        for answer in answers {
            diagnoses.record_call(&match *answer {
                "lost" => ModelCallOutcome::Lost,
                "good" => ModelCallOutcome::Diagnosis { proposals: 1, response: String::new() },
                error => ModelCallOutcome::Invalid { error: error.into() },
            });
        }
        assert_eq!(diagnoses.under.unwrap().next_step(), *want, "{answers:?}");
    }

    #[test]
    fn an_invalid_answer_is_asked_again_once() {
        let call = |call: u32, reask: Option<&str>| DiagnosisStep::Call { call, reask: reask.map(str::to_owned) };
        let give_up = |why: &str| DiagnosisStep::GiveUp { why: why.to_owned() };
        check(&[], &call(0, None));
        check(&["lost"], &call(1, None));
        check(&["bad"], &call(1, Some("bad")));
        check(&["bad", "lost"], &call(2, Some("bad")));
        check(&["bad", "worse"], &give_up("the doctor gave no valid answer: worse"));
        check(&["lost", "lost", "lost"], &give_up("3 calls to the doctor were lost"));
        check(&["good"], &DiagnosisStep::Write { call: 0 });
        check(&["bad", "good"], &DiagnosisStep::Write { call: 1 });
    }

    #[test]
    fn proposals_are_numbered_and_due() {
        let mut diagnoses = DiagnosisProgress::default();
        diagnoses.request();
        diagnoses.record_written(4, 3, 2, None);
        assert_eq!((diagnoses.next_number(), diagnoses.due.len()), (4, 0));
        diagnoses.record_written(8, 2, 1, Some(&Vec::new()));
        assert_eq!(diagnoses.due, BTreeSet::from([4]));
        diagnoses.record_applied(4);
        diagnoses.record_applied(2);
        assert_eq!((diagnoses.open_proposals().collect::<Vec<_>>(), diagnoses.due.len()), (vec![5, 1, 3], 0));
        assert_eq!((diagnoses.written, diagnoses.after, &diagnoses.under), (2, Some(8), &None));
        diagnoses.record_written(9, 3, 1, Some(&vec![3, 6, 8, 9]));
        assert_eq!(diagnoses.due, BTreeSet::from([6, 8]), "only its own");
    }
}
