//! Splits a diagnosis into proposals that the user can accept one by one.

use serde::{Deserialize, Serialize};

use super::reply::Diagnosis;
use super::task_revision::{RevisionStrictness, apply_task_diff, revise};
use crate::{patch, prompt::templates, text};

/// One change that a diagnosis proposes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Proposal {
    /// Add a guardrail.
    Guardrail { trigger: String, instruction: String, evidence: String },
    /// Change the task by a unified diff.
    Task { diff: String },
    /// Continue with another profile.
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

    /// Describes in one line what applying the proposal would do.
    pub fn describe(&self) -> String {
        let line = |text: &str| {
            let words = text::strip_control(text).split_whitespace().collect::<Vec<_>>().join(" ");
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

    /// Returns whether the proposal may be applied without asking: a guardrail, a task whose checks are no weaker, or
    /// one of these profiles if the user has not chosen one. The `Err` says why the user has to decide.
    pub fn can_apply_unasked(&self, task: &str, profiles: &[&str], chosen: Option<&str>) -> Result<(), String> {
        match self {
            Self::Guardrail { .. } => Ok(()),
            Self::Task { diff } => {
                let revised =
                    apply_task_diff(task, diff).and_then(|text| revise(task, &text, RevisionStrictness::OnlyStricter));
                revised.map(drop).map_err(|refusal| refusal.to_string())
            }
            Self::Profile { name, .. } if !profiles.contains(&name.as_str()) => {
                Err(format!("the run works with the profiles {}", profiles.join(", ")))
            }
            Self::Profile { .. } => match chosen {
                Some(chosen) => Err(format!("the profile {chosen} was chosen before")),
                None => Ok(()),
            },
        }
    }

    /// Returns the text of a guardrail. Its name is unique in the run, so that it can be found again.
    pub fn guardrail_text(&self, number: u32, after: u32) -> Option<String> {
        let Self::Guardrail { trigger, instruction, evidence } = self else { return None };
        let name = format!("proposal {number} of a diagnosis");
        Some(format!("\n{}", templates::guardrail_sign(&name, trigger, instruction, after, evidence)))
    }
}

/// Returns the proposals of a diagnosis, guardrails first. A profile that the run does not have is left out.
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
    fn proposals_are_ordered_and_applicable() {
        let mut value = example();
        value["task_diff"] = "@@ -1 +1,2 @@\n a\n+b\n".into();
        let diagnosis = parse(&value.to_string()).unwrap();
        let words = |profiles: &[&str]| -> Vec<String> {
            proposals(&diagnosis, profiles).iter().map(Proposal::describe).collect()
        };
        let first =
            ["put up a sign: when a check is red, change the code first", "change the task: 1 lines added, 0 removed"];
        assert_eq!(words(&["cheap"]), first);
        assert_eq!(words(&["strong"])[2], "go on with profile strong: it reads before it runs");
    }

    #[test]
    fn proposals_that_need_no_approval() {
        const TASK: &str = "---\ntask_id: t-1\ntest_command: \"make test\"\nmax_iterations: 5\nmax_wall_time_minutes: 9\n\
            max_cost_usd_estimate: 1\n---\n\n# Title\n\nWords.\n\n- [ ] M1.1 one\n  - verify: `sh one.sh`\n\
            - [ ] M1.2 two\n  - verify: `sh two.sh`\n";
        let task = |from: &str, to: &str| Proposal::Task { diff: format!("@@ -1 +1 @@\n-{from}\n+{to}\n") };
        let profile = |name: &str| Proposal::Profile { name: name.to_owned(), why: "w".to_owned() };
        let word = |proposal: &Proposal, chosen: Option<&str>| {
            proposal.can_apply_unasked(TASK, &["cheap", "strong"], chosen).err().unwrap_or_else(|| "ok".to_owned())
        };
        let (trigger, instruction, evidence) = ("t".to_owned(), "i".to_owned(), "e".to_owned());
        assert_eq!(word(&Proposal::Guardrail { trigger, instruction, evidence }, None), "ok");
        assert_eq!(word(&task("Words.", "Better words."), None), "ok");
        let weaker = task("  - verify: `sh two.sh`", "  - verify: `true`");
        assert_eq!(word(&weaker, None), "it would take the proof `sh two.sh` from box `M1.2`");
        assert!(word(&task("max_iterations: 5", "max_iterations: 50"), None).contains("was pinned"));
        assert!(word(&task("nowhere", "here"), None).contains("does not fit"));
        assert_eq!(word(&profile("strong"), None), "ok");
        assert_eq!(word(&profile("strong"), Some("cheap")), "the profile cheap was chosen before");
        assert_eq!(word(&profile("doctor"), None), "the run works with the profiles cheap, strong");
    }

    #[test]
    fn a_guardrail_has_a_unique_name() {
        let sign = |text: &str| Proposal::Guardrail {
            trigger: text.to_owned(),
            instruction: "do".to_owned(),
            evidence: "seen".to_owned(),
        };
        assert_eq!(
            sign("a\n### sign: b").guardrail_text(2, 7).unwrap(),
            "\n### sign: proposal 2 of a diagnosis\n- trigger: a ### sign: b\n- instruction: do\n- added after: iteration 7\n- evidence: seen\n"
        );
        assert_eq!(Proposal::Task { diff: String::new() }.guardrail_text(1, 1), None);
    }
}
