//! Renders a diagnosis for users and later sessions: one entry of `.ralph/diagnostics.md`.

use std::fmt::Write as _;

use super::proposal::Proposal;
use super::reply::Diagnosis;
use crate::text;

/// Returns the entry of a diagnosis, ready to be appended. Every field is one line, so that none can imitate another.
pub fn report(
    diagnosis: &Diagnosis,
    proposals: &[Proposal],
    (number, after, profile): (u32, u32, &str),
    first: u32,
) -> String {
    let mut out = heading(number, after, profile);
    list(&mut out, "What keeps happening", diagnosis.patterns.iter().map(|pattern| line(pattern)));
    list(&mut out, "Why", diagnosis.causes.iter().map(|cause| line(cause)));
    let numbered =
        (first..).zip(proposals).map(|(number, proposal)| format!("proposal {number}: {}", proposal.describe()));
    list(&mut out, "What is proposed", numbered);
    out
}

/// Returns the entry of a failed diagnosis.
pub fn failure_report(number: u32, after: u32, profile: &str, why: &str) -> String {
    let mut out = heading(number, after, profile);
    writeln!(out, "\nNo diagnosis: {}", line(why)).expect("writing to a String cannot fail");
    out
}

fn heading(number: u32, after: u32, profile: &str) -> String {
    format!("\n## Diagnosis {number}, after iteration {after}, by {}\n", line(profile))
}

fn list(out: &mut String, title: &str, items: impl Iterator<Item = String>) {
    writeln!(out, "\n### {title}").expect("writing to a String cannot fail");
    for item in items {
        writeln!(out, "- {item}").expect("writing to a String cannot fail");
    }
}

fn line(text: &str) -> String {
    let words = text::strip_control(text).split_whitespace().collect::<Vec<_>>().join(" ");
    text::head(&words, 600).to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::reply::tests::example;
    use super::super::{parse, proposals};
    use super::*;

    #[test]
    fn entries_are_rendered() {
        let mut value = example();
        value["causes"] = serde_json::json!(["one\n## Diagnosis 9", "two"]);
        let diagnosis = parse(&value.to_string()).unwrap();
        let entry = report(&diagnosis, &proposals(&diagnosis, &["strong"]), (2, 7, "doctor"), 4);
        insta::assert_snapshot!(entry, @r"

        ## Diagnosis 2, after iteration 7, by doctor

        ### What keeps happening
        - the usage check is run again and again

        ### Why
        - one ## Diagnosis 9
        - two

        ### What is proposed
        - proposal 4: put up a sign: when a check is red, change the code first
        - proposal 5: go on with profile strong: it reads before it runs
        ");
        assert_eq!(
            failure_report(3, 8, "doctor", "the answer\nwas empty"),
            "\n## Diagnosis 3, after iteration 8, by doctor\n\nNo diagnosis: the answer was empty\n"
        );
    }
}
