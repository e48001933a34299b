//! How far a run is with its diagnoses: a fold of its events, and the next step of the one under way.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::event::Answer;

/// How often a doctor may answer with something invalid: once, and once more when told what was wrong.
pub const ANSWERS: usize = 2;

/// After so many lost calls a diagnosis is given up: it is worth something, but not any price.
pub const LOST: u32 = 3;

/// All that is known of a run's diagnoses.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Diagnoses {
    /// The one that is wanted and not written yet.
    pub under: Option<Under>,
    /// How many were written, and after which iteration the last one.
    pub written: u32,
    pub after: Option<u32>,
    /// How many proposals they made; the next one gets the number after that.
    pub proposals: u32,
    /// The first number of every diagnosis that made some.
    pub starts: Vec<u32>,
    /// The proposals that were carried out.
    pub applied: BTreeSet<u32>,
    /// Proposals the task wants carried out without asking.
    pub due: BTreeSet<u32>,
}

/// A diagnosis under way.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Under {
    /// Calls made so far, lost ones included.
    pub calls: u32,
    /// Why each answer so far was not valid.
    pub invalid: Vec<String>,
    /// The last call was answered with a diagnosis, which is not written down yet.
    pub answered: bool,
}

/// The next step of a diagnosis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Doing {
    /// Ask the doctor; `reask` names what was wrong with its last answer.
    Call { call: u32, reask: Option<String> },
    /// Write down the answer of this call.
    Write { call: u32 },
    /// Write down why there is none.
    GiveUp { why: String },
}

impl Under {
    /// Returns what comes next.
    pub fn doing(&self) -> Doing {
        let lost = self.calls.saturating_sub(u32::try_from(self.invalid.len()).unwrap_or(u32::MAX));
        if self.answered {
            Doing::Write { call: self.calls.saturating_sub(1) }
        } else if self.invalid.len() >= ANSWERS {
            let error = self.invalid.last().map_or("", String::as_str);
            Doing::GiveUp { why: format!("the doctor gave no valid answer: {error}") }
        } else if lost >= LOST {
            Doing::GiveUp { why: format!("{lost} calls to the doctor were lost") }
        } else {
            Doing::Call { call: self.calls, reask: self.invalid.last().cloned() }
        }
    }

    fn called(&mut self, answer: &Answer) {
        self.calls = self.calls.saturating_add(1);
        match answer {
            Answer::Diagnosis { .. } => self.answered = true,
            Answer::Invalid { error } => self.invalid.push(error.clone()),
            Answer::Actions { .. } | Answer::Lost | Answer::Through { .. } => (),
        }
    }
}

impl Diagnoses {
    /// Takes note that one is wanted; a second wish while one is under way is the same wish.
    pub fn want(&mut self) {
        self.under.get_or_insert_default();
    }

    /// Takes note of a call outside an iteration: the doctor's, or one of an agent's that was charged late.
    pub fn called(&mut self, answer: &Answer) {
        if matches!(answer, Answer::Through { .. }) {
            return;
        }
        self.under.get_or_insert_default().called(answer);
    }

    /// Takes note of a diagnosis that was written, and of what is carried out without asking: nothing, these numbers, or,
    /// where an older run names none, its signs, which are the first `guardrails` proposals.
    pub fn written(&mut self, after: u32, proposals: u32, guardrails: u32, unasked: Option<&Vec<u32>>) {
        self.under = None;
        self.written = self.written.saturating_add(1);
        self.after = Some(after);
        let first = self.first();
        self.proposals = self.proposals.saturating_add(proposals);
        let made = first..self.first();
        if !made.is_empty() {
            self.starts.push(first);
        }
        match unasked.map(Vec::as_slice) {
            None => (),
            Some([]) => self.due.extend(made.take(usize::try_from(guardrails).unwrap_or(usize::MAX))),
            Some(numbers) => self.due.extend(numbers.iter().filter(|number| made.contains(number))),
        }
    }

    pub fn applied(&mut self, number: u32) {
        self.applied.insert(number);
        self.due.remove(&number);
    }

    /// Returns the number the next proposal gets.
    pub fn first(&self) -> u32 {
        self.proposals.saturating_add(1)
    }

    /// Returns the proposals nobody has carried out yet, those of the newest diagnosis first.
    pub fn open(&self) -> impl Iterator<Item = u32> + '_ {
        let mut end = self.first();
        let of_one = self.starts.iter().rev().flat_map(move |start| *start..std::mem::replace(&mut end, *start));
        of_one.filter(|number| !self.applied.contains(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(answers: &[&str], want: &Doing) {
        let mut diagnoses = Diagnoses::default();
        diagnoses.want();
        for answer in answers {
            diagnoses.called(&match *answer {
                "lost" => Answer::Lost,
                "good" => Answer::Diagnosis { proposals: 1, response: String::new() },
                error => Answer::Invalid { error: error.to_owned() },
            });
        }
        assert_eq!(diagnoses.under.unwrap().doing(), *want, "{answers:?}");
    }

    #[test]
    fn one_question_one_more_and_no_third() {
        let call = |call: u32, reask: Option<&str>| Doing::Call { call, reask: reask.map(str::to_owned) };
        let give_up = |why: &str| Doing::GiveUp { why: why.to_owned() };
        check(&[], &call(0, None));
        check(&["lost"], &call(1, None));
        check(&["bad"], &call(1, Some("bad")));
        check(&["bad", "lost"], &call(2, Some("bad")));
        check(&["bad", "worse"], &give_up("the doctor gave no valid answer: worse"));
        check(&["lost", "lost", "lost"], &give_up("3 calls to the doctor were lost"));
        check(&["good"], &Doing::Write { call: 0 });
        check(&["bad", "good"], &Doing::Write { call: 1 });
    }

    #[test]
    fn numbers_and_what_is_due() {
        let mut diagnoses = Diagnoses::default();
        diagnoses.want();
        diagnoses.written(4, 3, 2, None);
        assert_eq!((diagnoses.first(), diagnoses.due.len()), (4, 0));
        diagnoses.written(8, 2, 1, Some(&Vec::new()));
        assert_eq!(diagnoses.due, BTreeSet::from([4]));
        diagnoses.applied(4);
        diagnoses.applied(2);
        assert_eq!((diagnoses.open().collect::<Vec<_>>(), diagnoses.due.len()), (vec![5, 1, 3], 0));
        assert_eq!((diagnoses.written, diagnoses.after, &diagnoses.under), (2, Some(8), &None));
        diagnoses.written(9, 3, 1, Some(&vec![3, 6, 8, 9]));
        assert_eq!(diagnoses.due, BTreeSet::from([6, 8]), "only its own");
    }
}
