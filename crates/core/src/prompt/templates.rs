//! The initial contents of the files under `.ralph/` in a new run.

use crate::text;

/// `.ralph/progress.md`
pub const PROGRESS: &str = "\
# Progress

Rewrite this page at the end of an iteration. Keep it to one screen.

## Done
- nothing so far

## Next
- look around, install what the task needs, run the test command once
- then the first open box

## Blockers
- none known

## Last known status
- after iteration 0
- tests: not run
";

/// `.ralph/notes.md`
pub const NOTES: &str = "\
# Notes

Hints from people, newest last. One fact or decision each: where something is, what a word means, which way was chosen.
A note explains the task; it cannot replace it.
";

/// `.ralph/diagnostics.md`
pub const DIAGNOSTICS: &str = "\
# Diagnostics

Each report says: what keeps failing, why that may be, which signs would help, how the task could be clearer, and
whether another profile should try. Newest last.
";

/// Returns the initial `.ralph/guardrails.md`: how to add a sign, and three signs.
pub fn guardrails() -> String {
    [
        "\
# Guardrails

Signs put up where somebody went wrong. Read them all before you start. This file only grows.

## Adding a sign
After a mistake that could happen again, append one in this form:

",
        &guardrail_sign(
            "<name>",
            "<the situation in which it goes wrong>",
            "<what to do there>",
            "<N>",
            "<the error or symptom seen>",
        ),
        "
## Signs

",
        &guardrail_sign(
            "small diffs",
            "a fix starts to spread over many files",
            "change only what the current box needs and leave the rest as it is",
            0,
            "ships with every run",
        ),
        "\n",
        &guardrail_sign(
            "test after logic",
            "behaviour was changed",
            "run the test command again before the commit",
            0,
            "ships with every run",
        ),
        "\n",
        &guardrail_sign(
            "never handle secrets",
            "a login, key or token seems to be missing or wrong",
            "do not print it, write it down or look for another one; say what is missing in the progress file",
            0,
            "ships with every run",
        ),
    ]
    .concat()
}

/// Returns one sign, ready to be appended to the guardrails.
///
/// Each field becomes one short line, so that no field can pass for another sign.
pub fn guardrail_sign(
    name: &str,
    trigger: &str,
    instruction: &str,
    added_after: impl std::fmt::Display,
    evidence: &str,
) -> String {
    format!(
        "### sign: {}\n- trigger: {}\n- instruction: {}\n- added after: iteration {}\n- evidence: {}\n",
        one_line(name, 80),
        one_line(trigger, 300),
        one_line(instruction, 500),
        one_line(&added_after.to_string(), 40),
        one_line(evidence, 500),
    )
}

fn one_line(field: &str, bytes: usize) -> String {
    let words = text::strip_control(text::head(field, bytes)).split_whitespace().collect::<Vec<_>>().join(" ");
    if words.is_empty() { "-".to_owned() } else { words }
}

/// Returns the initial contents of a `.ralph` file; logs start empty.
pub fn initial_text(name: &str) -> String {
    match name {
        "guardrails.md" => guardrails(),
        "progress.md" => PROGRESS.to_owned(),
        "notes.md" => NOTES.to_owned(),
        "diagnostics.md" => DIAGNOSTICS.to_owned(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_is_always_five_lines() {
        assert_eq!(
            guardrail_sign("a\n### sign: b", "  ", "do\tit", 7, "\u{1b}[31mboom\r\n- trigger: x"),
            "### sign: a ### sign: b\n- trigger: -\n- instruction: do it\n- added after: iteration 7\n- evidence: boom - trigger: x\n"
        );
        assert_eq!(guardrail_sign("x", &"é".repeat(999), "y", 1, "z").lines().nth(1).map(str::len), Some(11 + 300));
    }

    #[test]
    fn initial_guardrails() {
        insta::assert_snapshot!(guardrails(), @r#"
        # Guardrails

        Signs put up where somebody went wrong. Read them all before you start. This file only grows.

        ## Adding a sign
        After a mistake that could happen again, append one in this form:

        ### sign: <name>
        - trigger: <the situation in which it goes wrong>
        - instruction: <what to do there>
        - added after: iteration <N>
        - evidence: <the error or symptom seen>

        ## Signs

        ### sign: small diffs
        - trigger: a fix starts to spread over many files
        - instruction: change only what the current box needs and leave the rest as it is
        - added after: iteration 0
        - evidence: ships with every run

        ### sign: test after logic
        - trigger: behaviour was changed
        - instruction: run the test command again before the commit
        - added after: iteration 0
        - evidence: ships with every run

        ### sign: never handle secrets
        - trigger: a login, key or token seems to be missing or wrong
        - instruction: do not print it, write it down or look for another one; say what is missing in the progress file
        - added after: iteration 0
        - evidence: ships with every run
        "#);
    }
}
