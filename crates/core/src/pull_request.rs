//! Describes pull requests: what one says, built from templates whose variables are known, why it was updated, and what
//! its CI checks say.
//!
//! Where a pull request is opened is not here but behind `Scm` in the engine.

use std::collections::BTreeSet;
use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};

use crate::commit_sha::CommitSha;
use crate::event::ReviewFinding;
use crate::gate_or_checkbox::CheckTarget;
use crate::identifiers::TaskBranch;
use crate::money::MicroUsd;
use crate::proof_files::ProofFileChanges;
use crate::receipt::ReceiptCheck;

/// A pull request as it is passed to the host of the repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullRequest {
    pub title: String,
    pub body: String,
    pub draft: bool,
    pub labels: Vec<String>,
    /// The target branch.
    pub base: String,
    pub branch: TaskBranch,
    /// The pushed commit that its text describes.
    pub sha: CommitSha,
}

/// What the CI checks of a pushed commit say.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "kebab-case")]
pub enum CiState {
    /// There are no checks.
    #[default]
    None,
    Pending,
    Passed,
    Failed {
        /// The names of the checks that failed.
        checks: Vec<String>,
    },
    /// A state that this version does not know.
    #[serde(other)]
    Unknown,
}

impl CiState {
    pub fn is_none(&self) -> bool {
        *self == Self::None
    }
}

impl fmt::Display for CiState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Pending => f.write_str("pending"),
            Self::Passed => f.write_str("passed"),
            Self::Failed { checks } => write!(f, "failed: {}", checks.join(", ")),
            Self::Unknown => f.write_str("unknown"),
        }
    }
}

/// Why a branch is pushed and its pull request opened or updated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum PublishReason {
    FirstCommits,
    MilestoneComplete,
    AllBoxesVerified,
    RunEnds,
    /// The text carries the final proof.
    Proved,
    /// Written by another version of ralph.
    Other(String),
}

impl PublishReason {
    const KNOWN: [Self; 5] =
        [Self::FirstCommits, Self::MilestoneComplete, Self::AllBoxesVerified, Self::RunEnds, Self::Proved];

    pub fn as_str(&self) -> &str {
        match self {
            Self::FirstCommits => "first commits",
            Self::MilestoneComplete => "milestone complete",
            Self::AllBoxesVerified => "all boxes verified",
            Self::RunEnds => "the run ends",
            Self::Proved => "proved",
            Self::Other(why) => why,
        }
    }
}

impl fmt::Display for PublishReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<String> for PublishReason {
    fn from(text: String) -> Self {
        Self::KNOWN.into_iter().find(|why| why.as_str() == text).unwrap_or(Self::Other(text))
    }
}

impl From<PublishReason> for String {
    fn from(why: PublishReason) -> Self {
        match why {
            PublishReason::Other(why) => why,
            known => known.as_str().to_owned(),
        }
    }
}

/// The variables a template may use.
pub const VARIABLES: [&str; 6] = ["task_id", "title", "branch", "summary", "verification", "cost"];

/// The values of the template variables.
#[derive(Debug, Clone)]
pub struct PullRequestValues<'a> {
    pub task_id: &'a str,
    pub title: &'a str,
    pub branch: &'a str,
    pub summary: &'a str,
    pub verification: &'a str,
    pub cost: MicroUsd,
}

/// The default title of a pull request.
pub const DEFAULT_TITLE: &str = "{title}";

/// The default body of a pull request.
pub const DEFAULT_BODY: &str = "\
{summary}

## Verification

{verification}

---
Task `{task_id}` on branch `{branch}`, model cost {cost}. Made by ralph.
";

/// Fills in a template. Braces that name no variable are left unchanged.
pub fn fill_template(template: &str, words: &PullRequestValues<'_>) -> String {
    let mut out = String::with_capacity(template.len());
    let mut rest = template;
    while let Some(start) = rest.find('{') {
        let (before, from) = rest.split_at(start);
        out.push_str(before);
        let value = from.find('}').and_then(|end| Some((variable(&from[1..end], words)?, end)));
        if let Some((value, end)) = value {
            // A filled-in value is never expanded again.
            out.push_str(&value);
            rest = &from[end + 1..];
        } else {
            out.push('{');
            rest = &from[1..];
        }
    }
    out.push_str(rest);
    out
}

fn variable(name: &str, words: &PullRequestValues<'_>) -> Option<String> {
    Some(match name {
        "task_id" => words.task_id.to_owned(),
        "title" => words.title.to_owned(),
        "branch" => words.branch.to_owned(),
        "summary" => words.summary.to_owned(),
        "verification" => words.verification.to_owned(),
        "cost" => words.cost.to_string(),
        _ => return None,
    })
}

/// Formats checks as a Markdown table.
pub fn check_table(checks: &[ReceiptCheck]) -> String {
    let mut out = "| proves | command | result | time |\n|---|---|---|---|\n".to_owned();
    for check in checks {
        let result = match (check.passed(), check.timed_out) {
            (true, _) => "passed".to_owned(),
            (false, true) => "timed out".to_owned(),
            (false, false) => format!("**failed** (exit {})", check.code),
        };
        let seconds = check.duration_ms as f64 / 1000.0;
        writeln!(
            out,
            "| {} | {} | {result} | {seconds:.1} s |",
            table_cell(&CheckTarget::join(&check.proves, ", ")),
            code_span(&check.command)
        )
        .expect("writing to a String cannot fail");
    }
    out
}

/// Says over a table of checks what it is worth: a test that the run wrote itself is the model's word.
pub fn check_table_heading(checks: &[ReceiptCheck]) -> String {
    let own: BTreeSet<&String> = checks.iter().flat_map(|check| &check.written_by_run).collect();
    let start = "Re-run by ralph on the pushed commit, each line in a fresh sandbox";
    if own.is_empty() {
        return format!("{start}. The results are ralph's own; what they show is what the tests test.");
    }
    let files: Vec<String> = own.into_iter().map(|path| code_span(path)).collect();
    format!(
        "{start}. **The run wrote these tests itself**, so what they prove is the model's word until you have read them: {}.",
        files.join(", ")
    )
}

/// Lists the files of the proof that the run changed, and what became of them; empty without one.
pub fn changed_proof_files(checks: &[ReceiptCheck]) -> String {
    let mut all = ProofFileChanges::default();
    for check in checks {
        all.merge(&check.files);
    }
    if all.is_empty() {
        return String::new();
    }
    let mut out = "\n### What the proof read that this run changed\n\n".to_owned();
    let mut group = |what: &str, paths: &[String]| {
        if !paths.is_empty() {
            let paths: Vec<String> = paths.iter().map(|path| code_span(path)).collect();
            writeln!(out, "- {what}: {}", paths.join(", ")).expect("writing to a String cannot fail");
        }
    };
    group("**Changed by the run; the proof used them as they were before**", &all.put_back);
    group("**New, and left out of the proof** because a test runner would load them by itself", &all.left_out);
    group("**Tests in source files that the run removed, changed or turned off**", &all.inline_tests);
    group(
        "**New lines of the product that end a process or skip tests**; inside a test they let it pass",
        &all.early_exits,
    );
    group("Given to the run by `may_change`; the proof used the run's version", &all.given);
    group("New tests that the run wrote itself and the proof ran", &all.own_tests);
    group("Files that define what is built and tested; the proof used the run's version", &all.build_files);
    group("All other changed files: the product, as a rule", &all.product);
    if all.not_listed > 0 {
        writeln!(out, "- and {} more", all.not_listed).expect("writing to a String cannot fail");
    }
    out
}

/// Returns a note about the boxes that have no proof of their own.
pub fn shared_proofs_note(boxes: &[&str]) -> String {
    if boxes.is_empty() {
        return String::new();
    }
    let names = table_cell(&boxes.join(", "));
    format!(
        "\nWithout a proof of their own (their commands also cover other boxes): {names}. Check that each was done.\n"
    )
}

/// Formats the files of a change, one line each; binary files have no counts.
pub fn changed_files_list(files: &[(String, Option<u64>, Option<u64>)]) -> String {
    let mut out = String::new();
    for (path, added, removed) in files {
        let count = |sign: char, lines: &Option<u64>| {
            lines.map_or_else(|| "binary".to_owned(), |lines| format!("{sign}{lines}"))
        };
        writeln!(out, "- {} {} {}", code_span(path), count('+', added), count('-', removed))
            .expect("writing to a String cannot fail");
    }
    out
}

/// Formats the findings for a reviewer.
pub fn findings_list(findings: &[ReviewFinding]) -> String {
    let mut out = String::new();
    for finding in findings {
        writeln!(out, "- **{}** {}", table_cell(&finding.rule), table_cell(&finding.detail))
            .expect("writing to a String cannot fail");
    }
    out
}

/// Formats text as an inline code span that no backtick or pipe inside can end.
pub fn code_span(text: &str) -> String {
    let text = single_line(text);
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    let pad = if text.starts_with('`') || text.ends_with('`') { " " } else { "" };
    format!("{fence}{pad}{text}{pad}{fence}")
}

/// Formats the words of a model: shown as they are, obeyed by nothing, and named as what they are.
pub fn quoted_summary(words: &str) -> String {
    let words = crate::text::strip_control(words);
    if words.trim().is_empty() {
        return String::new();
    }
    let longest = words.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    format!("The model's own words, which nobody checked:\n\n{fence}text\n{}\n{fence}", words.trim_end())
}

fn single_line(text: &str) -> String {
    crate::text::strip_control(text).replace('|', "\\|").replace(['\n', '\r', '\t'], " ")
}

/// Formats text on one line in which no tag or comment begins: `<!--` would hide what follows.
fn table_cell(text: &str) -> String {
    single_line(text).replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::Event;

    const WORDS: PullRequestValues<'_> = PullRequestValues {
        task_id: "t1",
        title: "Add {cost}",
        branch: "ralph/t1/add",
        summary: "Done.",
        verification: "table",
        cost: MicroUsd(1_500_000),
    };

    #[test]
    fn words_of_a_model_are_quoted() {
        let text = quoted_summary("<!-- hidden\n```\n@all closes #1\u{1b}[2J");
        assert_eq!(
            text,
            "The model's own words, which nobody checked:\n\n````text\n<!-- hidden\n```\n@all closes #1\n````"
        );
        assert_eq!(quoted_summary(" "), "");
        let finding = ReviewFinding {
            rule: "judge".to_owned(),
            path: "<!--".to_owned(),
            detail: "<!--: changed".to_owned(),
            stop: false,
        };
        assert_eq!(findings_list(&[finding]), "- **judge** &lt;!--: changed\n");
    }

    #[test]
    fn templates_are_filled() {
        for (template, want) in [
            ("[Ralph] {title}: {task_id}", "[Ralph] Add {cost}: t1"),
            ("{unknown} {", "{unknown} {"),
            ("{{cost}}", "{$1.50}"),
            ("", ""),
        ] {
            assert_eq!(fill_template(template, &WORDS), want);
        }
    }

    #[test]
    fn tables_and_lists_for_reviewers() {
        let files = [("a|b".to_owned(), Some(3), Some(0)), ("x.png".to_owned(), None, None)];
        assert_eq!(changed_files_list(&files), "- `a\\|b` +3 -0\n- `x.png` binary binary\n");
        let finding = ReviewFinding {
            rule: "auto-run".to_owned(),
            path: ".envrc".to_owned(),
            detail: ".envrc: a\nb".to_owned(),
            stop: false,
        };
        assert_eq!(shared_proofs_note(&[]), "");
        assert!(shared_proofs_note(&["M1.1", "M1.2"]).contains("M1.1, M1.2. Check"));
        assert_eq!(findings_list(&[finding]), "- **auto-run** .envrc: a b\n");
    }

    #[test]
    fn reasons_and_ci_states_are_plain_words_in_events() {
        for why in PublishReason::KNOWN {
            let text = serde_json::to_string(&why).unwrap();
            assert_eq!(text, format!("\"{why}\""));
            assert_eq!(serde_json::from_str::<PublishReason>(&text).unwrap(), why);
        }
        let other: PublishReason = serde_json::from_str("\"rebased\"").unwrap();
        assert_eq!(serde_json::to_string(&other).unwrap(), "\"rebased\"");
        let event = Event::CiChanged(CiState::Failed { checks: vec!["build".to_owned()] });
        let text = serde_json::to_string(&event).unwrap();
        assert_eq!(text, r#"{"type":"ci-changed","state":"failed","checks":["build"]}"#);
        assert_eq!(serde_json::from_str::<Event>(&text).unwrap(), event);
        assert_eq!(
            serde_json::from_str::<Event>(r#"{"type":"ci-changed","state":"passed"}"#).unwrap(),
            Event::CiChanged(CiState::Passed)
        );
        assert_eq!(
            serde_json::from_str::<Event>(r#"{"type":"ci-changed","state":"of-a-later-version"}"#).unwrap(),
            Event::CiChanged(CiState::Unknown)
        );
    }

    #[test]
    fn table_cells_are_escaped() {
        for (text, want) in [("a|b", "`a\\|b`"), ("`x`", "`` `x` ``"), ("a\nb", "`a b`")] {
            assert_eq!(code_span(text), want);
        }
    }
}
