//! Reads how many tests passed and failed from what well-known test runners print.
//!
//! One-line summaries (pytest, cargo test, nextest, jest, vitest) are added up, because one command may run several
//! runners; only without any of them go test, TAP and JUnit XML are tried, in that order. Unrecognised output is
//! `None`, never a guess. Errors and time-outs count as failed; skipped and ignored tests count as nothing.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::text;

/// The number of tests that passed and failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestCounts {
    pub passed: u32,
    pub failed: u32,
}

impl TestCounts {
    /// Parses the counts from the whole output of a test run.
    pub fn parse(output: &str) -> Option<Self> {
        summaries(output).or_else(|| go(output)).or_else(|| tap(output)).or_else(|| junit(output))
    }

    fn add(&mut self, other: Self) {
        self.passed = self.passed.saturating_add(other.passed);
        self.failed = self.failed.saturating_add(other.failed);
    }

    fn pass(&mut self, tests: u32) {
        self.add(Self { passed: tests, failed: 0 });
    }

    fn fail(&mut self, tests: u32) {
        self.add(Self { passed: 0, failed: tests });
    }
}

fn lines(output: &str) -> impl Iterator<Item = Cow<'_, str>> {
    output.lines().map(|line| {
        if line.contains(|c: char| c.is_control() && c != '\t') {
            Cow::Owned(text::strip_control(line))
        } else {
            Cow::Borrowed(line)
        }
    })
}

fn summaries(output: &str) -> Option<TestCounts> {
    let mut sum = None;
    for line in lines(output) {
        let line = line.trim();
        let found = cargo(line).or_else(|| nextest(line)).or_else(|| jest(line)).or_else(|| pytest(line));
        if let Some(found) = found {
            sum.get_or_insert_with(TestCounts::default).add(found);
        }
    }
    sum
}

/// `test result: FAILED. 3 passed; 1 failed; 0 ignored; …`
fn cargo(line: &str) -> Option<TestCounts> {
    let (_, counts) = line.strip_prefix("test result: ")?.split_once(". ")?;
    tally(counts.split(';'), TallyStrictness::Lenient)
}

/// `Summary [ 0.2s] 9 tests run: 7 passed (1 slow), 2 failed, 1 skipped`
fn nextest(line: &str) -> Option<TestCounts> {
    let (_, counts) = line.strip_prefix("Summary [")?.split_once(" run: ")?;
    tally(without_brackets(counts).split(','), TallyStrictness::Lenient)
}

/// `Tests:  1 failed, 4 passed, 5 total` or `Tests  1 failed | 4 passed (5)`
fn jest(line: &str) -> Option<TestCounts> {
    let counts = line.strip_prefix("Tests")?;
    match counts.strip_prefix(':') {
        Some(counts) => tally(counts.split(','), TallyStrictness::Lenient),
        None => tally(without_brackets(counts.strip_prefix(' ')?).split('|'), TallyStrictness::Lenient),
    }
}

/// `=== 1 failed, 4 passed, 2 warnings in 0.31s ===`, or the same without the `=` when quiet
fn pytest(line: &str) -> Option<TestCounts> {
    let (counts, time) = line.trim_matches(['=', ' ']).rsplit_once(" in ")?;
    if !time.starts_with(|c: char| c.is_ascii_digit()) || !time.contains('s') {
        return None;
    }
    if counts == "no tests ran" {
        return Some(TestCounts::default());
    }
    // Prose may contain `2 failed attempts in 3 seconds`, so every word has to be one of pytest's.
    tally(counts.split(','), TallyStrictness::Strict)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum TallyStrictness {
    Strict,
    Lenient,
}

/// What runners count besides passed and failed.
const OTHER_COUNTS: [&str; 10] =
    ["skipped", "xfailed", "deselected", "todo", "warning", "warnings", "rerun", "subtests passed", "total", "ignored"];

/// Adds up pieces such as `3 passed`; `None` if there is none.
fn tally<'a>(pieces: impl Iterator<Item = &'a str>, strict: TallyStrictness) -> Option<TestCounts> {
    let mut counts = TestCounts::default();
    let mut known = false;
    for piece in pieces {
        let piece = piece.trim();
        let (number, what) = piece.split_once(' ').unwrap_or((piece, ""));
        match (number.parse::<u32>(), what.trim()) {
            (Ok(number), "passed" | "xpassed") => counts.pass(number),
            (Ok(number), "failed" | "error" | "errors" | "timed out" | "exec failed") => counts.fail(number),
            (Ok(_), what) if OTHER_COUNTS.contains(&what) => (),
            _ if strict == TallyStrictness::Strict => return None,
            _ => continue,
        }
        known = true;
    }
    known.then_some(counts)
}

fn without_brackets(text: &str) -> String {
    let mut depth = 0u32;
    text.chars()
        .filter(|c| match c {
            '(' => {
                depth = depth.saturating_add(1);
                false
            }
            ')' => {
                depth = depth.saturating_sub(1);
                false
            }
            _ => depth == 0,
        })
        .collect()
}

/// Counts the top-level tests of `go test`.
///
/// Passing tests are shown only with `-v`; without it a passing package counts as one. A package that failed without a
/// failing test (it did not build, or it crashed) counts as one failure.
fn go(output: &str) -> Option<TestCounts> {
    let (mut counts, mut packages, mut known) = (TestCounts::default(), 0u32, false);
    let mut failed_here = false;
    for line in lines(output) {
        if line.starts_with("--- PASS: ") {
            counts.pass(1);
        } else if line.starts_with("--- FAIL: ") {
            counts.fail(1);
            failed_here = true;
        } else if line.starts_with("ok  \t") {
            packages = packages.saturating_add(1);
            failed_here = false;
        } else if line.starts_with("FAIL\t") {
            if !failed_here {
                counts.fail(1);
            }
            failed_here = false;
        } else {
            continue;
        }
        known = true;
    }
    if counts.passed == 0 {
        counts.pass(packages);
    }
    known.then_some(counts)
}

/// Counts the tests of the Test Anything Protocol. A version or a plan is required, because many lines begin with `ok`.
fn tap(output: &str) -> Option<TestCounts> {
    let (mut counts, mut seen, mut plan, mut known, mut bailed) = (TestCounts::default(), 0u32, 0u32, false, false);
    let mut totals: Option<TestCounts> = None;
    for line in lines(output) {
        if line.starts_with("TAP version ") {
            known = true;
        } else if let Some(last) = line.strip_prefix("1..").and_then(|rest| rest.split(' ').next()) {
            if let Ok(last) = last.trim().parse() {
                (plan, known) = (last, true);
            }
        } else if line.starts_with("Bail out!") {
            bailed = true;
        } else if let Some(number) = line.strip_prefix("# pass ") {
            totals.get_or_insert_default().pass(number.trim().parse().unwrap_or(0));
        } else if let Some(number) = line.strip_prefix("# fail ").or_else(|| line.strip_prefix("# cancelled ")) {
            totals.get_or_insert_default().fail(number.trim().parse().unwrap_or(0));
        } else if let Some((ok, rest)) = test_point(&line) {
            seen = seen.saturating_add(1);
            match (ok, directive(rest)) {
                (_, Some(TapDirective::Skip)) | (false, Some(TapDirective::Todo)) => (),
                (true, _) => counts.pass(1),
                (false, None) => counts.fail(1),
            }
        }
    }
    // A runner's own totals include nested tests; tests that were planned and never ran have failed.
    let mut counts = totals.unwrap_or_else(|| {
        counts.fail(plan.saturating_sub(seen));
        counts
    });
    if bailed && counts.failed == 0 {
        counts.fail(1);
    }
    known.then_some(counts)
}

fn test_point(line: &str) -> Option<(bool, &str)> {
    let (ok, rest) = match line.strip_prefix("not ok") {
        Some(rest) => (false, rest),
        None => (true, line.strip_prefix("ok")?),
    };
    (rest.is_empty() || rest.starts_with(' ')).then_some((ok, rest))
}

#[derive(Clone, Copy)]
enum TapDirective {
    Todo,
    Skip,
}

fn directive(rest: &str) -> Option<TapDirective> {
    let (_, comment) = rest.rsplit_once('#')?;
    match comment.trim_start().get(..4)?.to_ascii_lowercase().as_str() {
        "todo" => Some(TapDirective::Todo),
        "skip" => Some(TapDirective::Skip),
        _ => None,
    }
}

/// Counts `<testcase>` elements, not the suites' totals, which nested suites repeat.
fn junit(output: &str) -> Option<TestCounts> {
    if !output.contains("<testsuite") {
        return None;
    }
    let output = without_cdata(output);
    let mut counts = TestCounts::default();
    let mut cases = output.split("<testcase").skip(1).peekable();
    cases.peek()?;
    for case in cases {
        let case = case.split_once("</testcase>").map_or(case, |(case, _)| case);
        if case.contains("<failure") || case.contains("<error") {
            counts.fail(1);
        } else if !case.contains("<skipped") {
            counts.pass(1);
        }
    }
    Some(counts)
}

/// Removes CDATA sections, because captured output may quote XML.
fn without_cdata(xml: &str) -> String {
    let mut pieces = xml.split("<![CDATA[");
    let mut out = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        if let Some((_, after)) = piece.split_once("]]>") {
            out.push_str(after);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(output: &str, want: Option<(u32, u32)>) {
        assert_eq!(TestCounts::parse(output), want.map(|(passed, failed)| TestCounts { passed, failed }), "{output}");
    }

    #[test]
    fn pytest() {
        check("======= 2 failed, 11 passed, 1 skipped, 3 warnings in 0.48s =======\n", Some((11, 2)));
        check("\u{1b}[31m1 failed\u{1b}[0m, \u{1b}[32m4 passed\u{1b}[0m in 65.02s (0:01:05)", Some((4, 1)));
        check("tests/test_a.py ..F\n=== 1 error in 0.10s ===", Some((0, 1)));
        check("==== no tests ran in 0.01s ====", Some((0, 0)));
        check("3 xfailed, 2 xpassed, 1 deselected in 1.0s", Some((2, 0)));
        check("2 failed attempts in 3 seconds", None);
        check("4 passed in review", None);
    }

    #[test]
    fn cargo() {
        check(
            "running 4 tests\ntest a ... ok\n\ntest result: FAILED. 3 passed; 1 failed; 0 ignored; 0 measured; 2 filtered out; finished in 0.01s\n\
             test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n",
            Some((8, 1)),
        );
        check("error[E0425]: cannot find value `x`\nerror: could not compile `demo`", None);
    }

    #[test]
    fn nextest() {
        check(
            "     Summary [   0.214s] 12 tests run: 9 passed (1 slow, 1 flaky), 2 failed, 1 timed out, 4 skipped\n",
            Some((9, 3)),
        );
        check("Summary [ 1.0s] 3/8 tests run: 2 passed, 1 exec failed, 0 skipped", Some((2, 1)));
        check("Summary [draft] a first run: well", None);
    }

    #[test]
    fn jest_and_vitest() {
        check(
            "Test Suites: 1 failed, 2 passed, 3 total\nTests:       2 failed, 1 todo, 14 passed, 17 total\n",
            Some((14, 2)),
        );
        check(
            " Test Files  1 failed | 2 passed (3)\n      Tests  3 failed | 20 passed | 1 skipped (24)\n",
            Some((20, 3)),
        );
        check("      Tests  7 passed (7)", Some((7, 0)));
        check("Tests: see the handbook", None);
        check("Testsuite 3 passed", None);
    }

    #[test]
    fn go() {
        check(
            "=== RUN   TestA\n--- PASS: TestA (0.00s)\n--- FAIL: TestB (0.01s)\n    --- FAIL: TestB/x (0.00s)\nFAIL\nFAIL\tdemo/a\t0.013s\n",
            Some((1, 1)),
        );
        check("ok  \tdemo/a\t0.01s\nok  \tdemo/b\t(cached)\nFAIL\tdemo/c [build failed]\nFAIL\n", Some((2, 1)));
        check("panic: boom\nFAIL\tdemo/c\t0.1s", Some((0, 1)));
        check("ok then\nFAIL", None);
    }

    #[test]
    fn tap() {
        check(
            "TAP version 13\n1..4\nok 1 - a\nnot ok 2 - b\nok 3 # SKIP no net\nnot ok 4 # todo later\n",
            Some((1, 1)),
        );
        check("1..5\nok 1\nok 2\n    not ok 1 - nested\n", Some((2, 3)));
        check("TAP version 14\nok 1 - all\n# tests 9\n# pass 7\n# fail 2\n# cancelled 1\n1..1\n", Some((7, 3)));
        check("1..2\nok 1\nok 2\nBail out! disk full", Some((2, 1)));
        check("ok\nnot ok", None);
        check("1..many\nok 1", None);
    }

    #[test]
    fn junit() {
        check(
            r#"<testsuites tests="8"><testsuite name="a" tests="4"><testcase name="w"/>
               <testcase name="x"><failure message="m">no</failure></testcase>
               <testcase name="y"><error/></testcase>
               <testcase name="z"><skipped/></testcase>
               <testcase name="q"><system-out><![CDATA[<failure>]]></system-out></testcase>
               </testsuite></testsuites>"#,
            Some((2, 2)),
        );
        check("<testsuite tests=\"0\"></testsuite>", None);
        check("<testcase/>", None);
    }

    #[test]
    fn several_runners_are_added_up() {
        check("test result: ok. 5 passed; 0 failed; 0 ignored\n1 failed, 2 passed in 0.1s\n", Some((7, 1)));
        check("", None);
        check("all good", None);
    }

    #[test]
    fn huge_numbers_saturate() {
        check("4294967295 passed in 1s\n4294967295 passed in 1s", Some((u32::MAX, 0)));
        check("99999999999999999999 passed in 1s", None);
    }

    proptest! {
        #[test]
        fn no_text_panics(text in "(?s).{0,300}") {
            let _ = TestCounts::parse(&text);
        }

        #[test]
        fn no_runner_like_text_panics(text in "((TAP version 13|1\\.\\.|not ok |ok |ok  \t|# |skip|é|FAIL\t|--- FAIL: |<testcase|<testsuite|<!\\[CDATA\\[|\\]\\]>|Tests|:| in |=|[0-9]{1,12}| passed|;|,|\\(|\\)|Summary \\[| run: )[\n]?){0,20}") {
            let _ = TestCounts::parse(&text);
        }
    }
}
