//! Checks whether a text may become the new task of a run, given the current one.
//!
//! A diagnosis may make a task clearer or stricter. Only the user may weaken the checks (proofs, `test_command`,
//! protected paths), and what was pinned at the start (budgets, policy, profiles…) cannot be changed here at all.

use crate::event::PinnedBox;
use crate::lint::{self, Severity};
use crate::task::{self, Task};
use crate::{patch, text};

/// Whether the checks of a task may become weaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RevisionStrictness {
    /// For a diagnosis, or a user who did not allow it.
    OnlyStricter,
    /// For a user who allowed it.
    AllowWeaker,
}

/// A text that may become the task of the run.
#[derive(Debug, Clone, PartialEq)]
pub struct RevisedTask {
    pub text: String,
    pub task: Task,
}

/// Why a text may not become the task of a run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RevisionRefusal {
    #[error("its diff does not fit the task as it is now: {0}")]
    Patch(patch::PatchError),
    #[error("it would change nothing")]
    Same,
    #[error("the result is not a task: {why}")]
    NotATask { why: String },
    #[error("the result does not pass the linter: {why}")]
    Lint { why: String },
    #[error("it would remove box `{id}` and with it its proof")]
    BoxGone { id: String },
    #[error("it would take the proof `{command}` from box `{id}`")]
    ProofGone { id: String, command: String },
    #[error("it would change `{key}`, which the checks depend on")]
    ProofKey { key: &'static str },
    #[error("it would change `{key}`, which was pinned when the run started")]
    Pinned { key: String },
}

impl RevisionRefusal {
    /// Returns what the user can do about it.
    pub fn hint(&self, run: &str) -> Option<String> {
        match self {
            Self::BoxGone { .. } | Self::ProofGone { .. } | Self::ProofKey { .. } => {
                Some(format!("if that is what you want: ralph edit-task {run} FILE --allow-weaker"))
            }
            Self::Pinned { .. } => Some("ralph stop this run and start a new one with the changed task".to_owned()),
            Self::Patch(_) | Self::Same | Self::NotATask { .. } | Self::Lint { .. } => None,
        }
    }
}

/// The keys that the checks depend on.
const PROOF_KEYS: [&str; 4] = ["test_command", "verify_commands", "protected_paths", "may_change"];

/// Applies the diff of a diagnosis to the task as it is now.
pub fn apply_task_diff(now: &str, diff: &str) -> Result<String, RevisionRefusal> {
    patch::apply(now, diff).map_err(RevisionRefusal::Patch)
}

/// Checks whether a text may become the task of a run whose current task is `now`.
pub fn revise(now: &str, wanted: &str, who: RevisionStrictness) -> Result<RevisedTask, RevisionRefusal> {
    if now == wanted {
        return Err(RevisionRefusal::Same);
    }
    let read = |source: &str| {
        task::parse(source).map_err(|error| RevisionRefusal::NotATask { why: one_line(&error.to_string()) })
    };
    let (old, new) = (read(now)?, read(wanted)?);
    if let Some(key) = changed_pinned_key(&old, &new) {
        return Err(RevisionRefusal::Pinned { key });
    }
    if who == RevisionStrictness::OnlyStricter {
        check_not_weaker(&old, &new)?;
    }
    let mut findings = lint::lint(Some(wanted), &lint::LintContext::default()).into_iter();
    if let Some(finding) = findings.find(|finding| finding.severity == Severity::Error) {
        return Err(RevisionRefusal::Lint { why: one_line(&finding.message) });
    }
    Ok(RevisedTask { text: wanted.to_owned(), task: new })
}

/// Returns the first key that differs and does not affect the checks.
fn changed_pinned_key(old: &Task, new: &Task) -> Option<String> {
    let keys = |task: &Task| match serde_json::to_value(&task.front) {
        Ok(serde_json::Value::Object(keys)) => keys,
        _ => serde_json::Map::new(),
    };
    let (old, new) = (keys(old), keys(new));
    old.into_iter()
        .find(|(key, value)| !PROOF_KEYS.contains(&key.as_str()) && new.get(key) != Some(value))
        .map(|(key, _)| key)
}

fn check_not_weaker(old: &Task, new: &Task) -> Result<(), RevisionRefusal> {
    if old.front.test_command != new.front.test_command {
        return Err(RevisionRefusal::ProofKey { key: "test_command" });
    }
    // More paths may be protected, but not fewer, and none excluded with a `!`.
    let kept = old.front.protected_paths.iter().all(|path| new.front.protected_paths.contains(path));
    let freed =
        new.front.protected_paths.iter().any(|path| path.starts_with('!') && !old.front.protected_paths.contains(path));
    if !kept || freed {
        return Err(RevisionRefusal::ProofKey { key: "protected_paths" });
    }
    if new.front.may_change.iter().any(|path| !old.front.may_change.contains(path)) {
        return Err(RevisionRefusal::ProofKey { key: "may_change" });
    }
    let now = PinnedBox::from_task(new);
    for pinned in PinnedBox::from_task(old) {
        let Some(same) = now.iter().find(|other| other.id == pinned.id) else {
            return Err(RevisionRefusal::BoxGone { id: pinned.id });
        };
        if let Some(command) = pinned.proofs.iter().find(|command| !same.proofs.contains(command)) {
            return Err(RevisionRefusal::ProofGone { id: pinned.id.clone(), command: one_line(command) });
        }
    }
    // A command that no box depends on today may be needed by the next one.
    if old.front.verify_commands.iter().any(|command| !new.front.verify_commands.contains(command)) {
        return Err(RevisionRefusal::ProofKey { key: "verify_commands" });
    }
    Ok(())
}

fn one_line(text: &str) -> String {
    let words = text::strip_control(text).split_whitespace().collect::<Vec<_>>().join(" ");
    text::head(&words, 200).replace('`', "'")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TASK: &str = "---\ntask_id: t-1\ntest_command: \"make test\"\nmax_iterations: 5\nmax_wall_time_minutes: 10\n\
        max_cost_usd_estimate: 1\nprotected_paths: [\"tests/\"]\n---\n\n# Title\n\nWords.\n\n\
        - [ ] M1.1 one\n  - verify: `sh tests/one.sh`\n- [ ] M1.2 two\n  - verify: `sh tests/two.sh`\n";

    /// Checks the result of a replacement in the task, for a diagnosis and for a user who allows weaker checks.
    #[track_caller]
    fn check(from: &str, to: &str, want: (&str, &str)) {
        let wanted = TASK.replace(from, to);
        let word = |who: RevisionStrictness| {
            revise(TASK, &wanted, who).map_or_else(|refusal| refusal.to_string(), |_| "ok".to_owned())
        };
        assert_eq!(
            (word(RevisionStrictness::OnlyStricter).as_str(), word(RevisionStrictness::AllowWeaker).as_str()),
            want,
            "{from} -> {to}"
        );
    }

    #[test]
    fn clearer_and_stricter_tasks_are_accepted() {
        check("Words.", "Better words, in `src/greet.py`.", ("ok", "ok"));
        check("M1.1 one", "M1.1 one, for every name", ("ok", "ok"));
        check("one.sh`\n", "one.sh` `sh tests/also.sh`\n", ("ok", "ok"));
        let more = "two.sh`\n- [ ] M1.3 three\n  - verify: `sh tests/three.sh`\n";
        check("two.sh`\n", more, ("ok", "ok"));
        check("[\"tests/\"]", "[\"tests/\", \"ci/\"]", ("ok", "ok"));
    }

    #[test]
    fn only_the_user_may_weaken_checks() {
        check(
            "- [ ] M1.2 two\n  - verify: `sh tests/two.sh`\n",
            "- [ ] M1.3 two\n  - verify: `sh tests/two.sh`\n",
            ("it would remove box `M1.2` and with it its proof", "ok"),
        );
        check("sh tests/two.sh", "true", ("it would take the proof `sh tests/two.sh` from box `M1.2`", "ok"));
        check("make test", "make quick", ("it would change `test_command`, which the checks depend on", "ok"));
        let protected = "it would change `protected_paths`, which the checks depend on";
        check("[\"tests/\"]", "[]", (protected, "ok"));
        check("[\"tests/\"]", "[\"tests/\", \"!tests/one.sh\"]", (protected, "ok"));
    }

    #[test]
    fn pinned_keys_cannot_change() {
        let pinned = |key: &str| format!("it would change `{key}`, which was pinned when the run started");
        for (from, to, key) in [
            ("max_iterations: 5", "max_iterations: 50", "max_iterations"),
            ("max_cost_usd_estimate: 1", "max_cost_usd_estimate: 9", "max_cost_usd_estimate"),
            ("max_iterations: 5", "max_iterations: 5\nsandbox_network: {policy: open}", "sandbox_network"),
            ("max_iterations: 5", "max_iterations: 5\nproof_timeout_s: 5", "proof_timeout_s"),
            ("max_iterations: 5", "max_iterations: 5\nmin_changed_lines: 0", "min_changed_lines"),
            ("task_id: t-1", "task_id: t-2", "task_id"),
        ] {
            check(from, to, (&pinned(key), &pinned(key)));
        }
    }

    #[test]
    fn invalid_tasks_are_refused() {
        assert_eq!(revise(TASK, TASK, RevisionStrictness::AllowWeaker), Err(RevisionRefusal::Same));
        assert!(matches!(
            revise(TASK, "# no front matter\n", RevisionStrictness::AllowWeaker),
            Err(RevisionRefusal::NotATask { .. })
        ));
        let unproved = TASK.replace("  - verify: `sh tests/two.sh`\n", "");
        assert!(matches!(revise(TASK, &unproved, RevisionStrictness::AllowWeaker), Err(RevisionRefusal::Lint { .. })));
        assert!(matches!(apply_task_diff(TASK, "@@ -1 +1 @@\n-nowhere\n+here\n"), Err(RevisionRefusal::Patch(_))));
        let diff = "--- a/ralph_task.md\n+++ b/ralph_task.md\n@@ -1,3 +1,3 @@\n # Title\n \n-Words.\n+Other words.\n";
        assert_eq!(apply_task_diff(TASK, diff), Ok(TASK.replace("Words.", "Other words.")));
    }

    #[test]
    fn refusals_have_hints() {
        let hint = |refusal: RevisionRefusal| refusal.hint("r1").unwrap_or_default();
        assert!(
            hint(RevisionRefusal::BoxGone { id: "a".to_owned() }).contains("ralph edit-task r1 FILE --allow-weaker")
        );
        assert!(hint(RevisionRefusal::Pinned { key: "a".to_owned() }).contains("ralph stop"));
        assert_eq!(hint(RevisionRefusal::Same), "");
    }

    proptest! {
        /// Whatever a diagnosis changes in a task, every existing proof remains.
        #[test]
        fn no_proof_is_ever_lost(at in 0usize..TASK.len(), len in 0usize..60, put in "[ -~\n]{0,40}") {
            let (start, end) = (TASK.floor_char_boundary(at), TASK.floor_char_boundary((at + len).min(TASK.len())));
            let wanted = format!("{}{put}{}", &TASK[..start], &TASK[end..]);
            if let Ok(revised) = revise(TASK, &wanted, RevisionStrictness::OnlyStricter) {
                for pinned in PinnedBox::from_task(&task::parse(TASK).unwrap()) {
                    let kept = PinnedBox::from_task(&revised.task).into_iter().find(|other| other.id == pinned.id).unwrap();
                    prop_assert!(pinned.proofs.iter().all(|command| kept.proofs.contains(command)));
                }
                prop_assert_eq!(revised.task.front.test_command.as_deref(), Some("make test"));
            }
        }
    }
}
