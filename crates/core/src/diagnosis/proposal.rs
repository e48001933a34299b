//! What a diagnosis proposes, one thing at a time, so that a person can say yes to each.

use serde::{Deserialize, Serialize};

use super::reply::Diagnosis;
use crate::{patch, prompt::templates, text};

/// One thing a diagnosis would have done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Proposal {
    /// Put up a sign.
    Guardrail { trigger: String, instruction: String, evidence: String },
    /// Change the task by a unified diff.
    Task { diff: String },
    /// Go on with another profile.
    Profile { name: String, why: String },
}

impl Proposal {
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Guardrail { .. } => "guardrail",
            Self::Task { .. } => "task",
            Self::Profile { .. } => "profile",
        }
    }

    /// Says in one line what carrying it out would do.
    pub fn words(&self) -> String {
        let line = |text: &str| {
            let words = text::plain(text).split_whitespace().collect::<Vec<_>>().join(" ");
            text::head(&words, 200).to_owned()
        };
        match self {
            Self::Guardrail { trigger, instruction, .. } => {
                format!("put up a sign: when {}, {}", line(trigger), line(instruction))
            }
            Self::Task { diff } => {
                let (added, removed) = patch::stat(diff);
                format!("change the task: {added} lines added, {removed} removed")
            }
            Self::Profile { name, why } => format!("go on with profile {}: {}", line(name), line(why)),
        }
    }

    /// Returns the sign a guardrail becomes. Its name is its own in the run, so that it can be found again.
    pub fn sign(&self, number: u32, after: u32) -> Option<String> {
        let Self::Guardrail { trigger, instruction, evidence } = self else { return None };
        let name = format!("proposal {number} of a diagnosis");
        Some(format!("\n{}", templates::sign(&name, trigger, instruction, after, evidence)))
    }
}

/// Returns what a diagnosis proposes, guardrails first. A profile the run does not know is none of its proposals.
pub fn proposals(diagnosis: &Diagnosis, profiles: &[&str]) -> Vec<Proposal> {
    let signs = diagnosis.guardrails.iter().map(|guardrail| Proposal::Guardrail {
        trigger: guardrail.trigger.clone(),
        instruction: guardrail.instruction.clone(),
        evidence: guardrail.evidence.clone(),
    });
    let task = diagnosis.task_diff.iter().map(|diff| Proposal::Task { diff: diff.clone() });
    let profile = diagnosis
        .profile
        .iter()
        .filter(|profile| profiles.contains(&profile.name.as_str()))
        .map(|profile| Proposal::Profile { name: profile.name.clone(), why: profile.why.clone() });
    signs.chain(task).chain(profile).collect()
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::super::reply::tests::example;
    use super::*;

    #[test]
    fn in_order_and_only_what_can_be_done() {
        let mut value = example();
        value["task_diff"] = "@@ -1 +1,2 @@\n a\n+b\n".into();
        let diagnosis = parse(&value.to_string()).unwrap();
        let words = |profiles: &[&str]| -> Vec<String> {
            proposals(&diagnosis, profiles).iter().map(Proposal::words).collect()
        };
        let first =
            ["put up a sign: when a check is red, change the code first", "change the task: 1 lines added, 0 removed"];
        assert_eq!(words(&["cheap"]), first);
        assert_eq!(words(&["strong"])[2], "go on with profile strong: it reads before it runs");
    }

    #[test]
    fn a_sign_has_a_name_of_its_own() {
        let sign = |text: &str| Proposal::Guardrail {
            trigger: text.to_owned(),
            instruction: "do".to_owned(),
            evidence: "seen".to_owned(),
        };
        assert_eq!(
            sign("a\n### sign: b").sign(2, 7).unwrap(),
            "\n### sign: proposal 2 of a diagnosis\n- trigger: a ### sign: b\n- instruction: do\n- added after: iteration 7\n- evidence: seen\n"
        );
        assert_eq!(Proposal::Task { diff: String::new() }.sign(1, 1), None);
    }
}
