//! Stores the proposals of a run, numbered from 1 over all its diagnoses, for `ralph apply`.

use serde::{Deserialize, Serialize};

use super::proposal::Proposal;

const FORMAT: u32 = 1;

/// `proposals.json` in the run folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProposalList {
    pub format: u32,
    pub proposals: Vec<NumberedProposal>,
}

/// One proposal and its origin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumberedProposal {
    pub number: u32,
    /// The number of the diagnosis in the run, from 1, and the iteration it came after.
    pub diagnosis: u32,
    pub after: u32,
    #[serde(flatten)]
    pub proposal: Proposal,
}

impl Default for ProposalList {
    fn default() -> Self {
        Self { format: FORMAT, proposals: Vec::new() }
    }
}

impl ProposalList {
    /// Parses the file; a newer or damaged one is an error message.
    pub fn parse(text: &str) -> Result<Self, String> {
        let list: Self =
            serde_json::from_str(text).map_err(|error| format!("the proposals cannot be read: {error}"))?;
        if list.format > FORMAT {
            return Err(format!("the proposals have format {}, newer than this ralph knows", list.format));
        }
        Ok(list)
    }

    /// Adds the proposals of a diagnosis and removes earlier ones of the same diagnosis, so that it can be repeated.
    pub fn replace_from(&mut self, first: u32, diagnosis: u32, after: u32, proposals: Vec<Proposal>) {
        self.proposals.retain(|numbered| numbered.number < first);
        let numbered = (first..).zip(proposals);
        self.proposals.extend(numbered.map(|(number, proposal)| NumberedProposal {
            number,
            diagnosis,
            after,
            proposal,
        }));
    }

    pub fn get(&self, number: u32) -> Option<&NumberedProposal> {
        self.proposals.iter().find(|numbered| numbered.number == number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_continue_and_a_repeated_diagnosis_replaces_itself() {
        let sign = |trigger: &str| Proposal::Guardrail {
            trigger: trigger.to_owned(),
            instruction: "i".to_owned(),
            evidence: "e".to_owned(),
        };
        let mut list = ProposalList::default();
        list.replace_from(1, 1, 4, vec![sign("a"), Proposal::Task { diff: "d".to_owned() }]);
        list.replace_from(3, 2, 8, vec![sign("b")]);
        list.replace_from(3, 2, 8, vec![sign("b")]);
        let numbers: Vec<(u32, u32)> = list.proposals.iter().map(|one| (one.number, one.diagnosis)).collect();
        assert_eq!(numbers, [(1, 1), (2, 1), (3, 2)]);
        assert_eq!(list.get(3).map(|one| &one.proposal), Some(&sign("b")));
        assert_eq!(list.get(4), None);
        let text = serde_json::to_string(&list).unwrap();
        assert!(text.contains(r#"{"number":2,"diagnosis":1,"after":4,"kind":"task","diff":"d"}"#), "{text}");
        assert_eq!(ProposalList::parse(&text), Ok(list));
        assert!(ProposalList::parse("{").unwrap_err().contains("cannot be read"));
        assert!(ProposalList::parse(r#"{"format":2,"proposals":[]}"#).unwrap_err().contains("newer"));
    }
}
