//! Lists the slowest tests of a run, from the report that nextest writes.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::Context as _;

use crate::report;

const SHOWN: usize = 30;

#[derive(Debug, Clone, PartialEq)]
struct TestTime {
    /// The crate and binary, then the test.
    name: String,
    seconds: f64,
}

/// Prints the slowest tests.
pub(crate) fn print(junit: &Path) -> anyhow::Result<()> {
    let text = fs::read_to_string(junit).with_context(|| format!("could not read `{}`", junit.display()))?;
    report::print(&table(slowest(&text)));
    Ok(())
}

fn slowest(junit: &str) -> Vec<TestTime> {
    let mut times: Vec<TestTime> = junit.split("<testcase ").skip(1).filter_map(test_time).collect();
    times.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    times.truncate(SHOWN);
    times
}

/// Parses the text after `<testcase `.
fn test_time(element: &str) -> Option<TestTime> {
    let element = element.split('>').next()?;
    let attribute = |name: &str| {
        let value = format!(" {element}").split_once(&format!(" {name}=\""))?.1.split('"').next()?.to_owned();
        Some(value.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&"))
    };
    let name = format!("{} {}", attribute("classname")?, attribute("name")?);
    Some(TestTime { name, seconds: attribute("time")?.parse().ok()? })
}

fn table(times: Vec<TestTime>) -> String {
    let mut out = format!("the slowest {} tests:", times.len());
    for TestTime { name, seconds } in times {
        write!(out, "\n{seconds:>8.1} s  {name}").expect("writing to a String cannot fail");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const JUNIT: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="nextest-run" tests="3" time="9.9">
    <testsuite name="ralph-core" tests="2">
        <testcase name="a::quick" classname="ralph-core" timestamp="2026-01-01T00:00:00Z" time="0.012">
        </testcase>
        <testcase name="a::&lt;slow&gt;" classname="ralph-core::it" timestamp="2026-01-01T00:00:00Z" time="12.340">
            <failure type="test failure">time="99"</failure>
        </testcase>
        <testcase name="half"/>
    </testsuite>
</testsuites>"#;

    #[test]
    fn the_slowest_come_first() {
        let want = "the slowest 2 tests:\n    12.3 s  ralph-core::it a::<slow>\n     0.0 s  ralph-core a::quick";
        assert_eq!(table(slowest(JUNIT)), want);
    }

    #[test]
    fn the_list_is_limited() {
        let case = "<testcase name=\"a\" classname=\"b\" time=\"1\"/>";
        assert_eq!(slowest(&case.repeat(SHOWN + 5)).len(), SHOWN);
        assert_eq!(slowest("not a report"), []);
    }
}
