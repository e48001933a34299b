//! Prints all output of `xtask`: headings, errors, and the summary at the end.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "chores print to the terminal")]

use std::fmt::Write as _;
use std::time::Duration;

/// How one step ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TestStepOutcome {
    Passed,
    Failed(String),
    /// The step should have run and could not, or was not reached.
    NotRun(String),
    /// The caller asked to skip it.
    Skipped(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TestStepRow {
    pub name: &'static str,
    pub ending: TestStepOutcome,
    pub took: Duration,
}

pub(crate) fn print(text: &str) {
    println!("{text}");
}

pub(crate) fn print_error(text: &str) {
    eprintln!("{text}");
}

pub(crate) fn heading(text: &str) {
    println!("\n=== {text} ===");
}

/// Returns the table and, as the last line, the count of steps.
pub(crate) fn summary(rows: &[TestStepRow]) -> String {
    let mut out = String::from("=== summary ===\n");
    let wide = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    let (mut passed, mut failed, mut not_run) = (0, 0, 0);
    for TestStepRow { name, ending, took } in rows {
        let (word, why) = match ending {
            TestStepOutcome::Passed => {
                passed += 1;
                ("passed", "")
            }
            TestStepOutcome::Failed(why) => {
                failed += 1;
                ("FAILED", why.as_str())
            }
            TestStepOutcome::NotRun(why) => {
                not_run += 1;
                ("NOT RUN", why.as_str())
            }
            TestStepOutcome::Skipped(why) => ("left out", why.as_str()),
        };
        let line = format!("{word:<8}  {name:<wide$}  {:>6.1} s  {why}", took.as_secs_f64());
        out.push_str(line.trim_end());
        out.push('\n');
    }
    write!(out, "\n{passed} passed, {failed} failed").expect("writing to a String cannot fail");
    if not_run > 0 {
        write!(out, ", {not_run} not run").expect("writing to a String cannot fail");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &'static str, ending: TestStepOutcome) -> TestStepRow {
        TestStepRow { name, ending, took: Duration::from_millis(1234) }
    }

    #[test]
    fn all_passed() {
        let rows =
            [row("format", TestStepOutcome::Passed), row("fuzz", TestStepOutcome::Skipped("--quick".to_owned()))];
        let want = "=== summary ===
passed    format     1.2 s
left out  fuzz       1.2 s  --quick

1 passed, 0 failed";
        assert_eq!(summary(&rows), want);
    }

    #[test]
    fn one_failed() {
        let rows = [
            row("format", TestStepOutcome::Passed),
            row("lints", TestStepOutcome::Failed("clippy".to_owned())),
            row("tests", TestStepOutcome::NotRun("after the failure".to_owned())),
        ];
        let want = "=== summary ===
passed    format     1.2 s
FAILED    lints      1.2 s  clippy
NOT RUN   tests      1.2 s  after the failure

1 passed, 1 failed, 1 not run";
        assert_eq!(summary(&rows), want);
    }
}
