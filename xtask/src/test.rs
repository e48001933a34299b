//! `cargo xtask test`: every step in order, up to the first failure, with a summary.

use std::time::{Duration, Instant};

use anyhow::bail;

use crate::fuzz::FUZZ_MANIFEST;
use crate::house::{House, Place};
use crate::options::{Missing, Pace, TestOptions};
use crate::outside::Fetching;
use crate::report::{self, Ending, Row};
use crate::{deny, fuzz, licence, outside, program, rules};

type Step = fn(&House, TestOptions, &mut Option<Fetching>) -> anyhow::Result<Ending>;

const STEPS: &[(&str, Step)] = &[
    ("outside programs", |house, _, fetching| {
        outside::run(house)?;
        *fetching = Some(Fetching::begin(house));
        Ok(Ending::Passed)
    }),
    ("format", |house, _, _| format(house).map(|()| Ending::Passed)),
    ("lints", |house, _, _| lints(house).map(|()| Ending::Passed)),
    ("house rules", |house, _, _| rules::run(house).map(|()| Ending::Passed)),
    ("fetched programs", |house, _, fetching| {
        fetching.take().map_or(Ok(()), |fetching| fetching.end(house)).map(|()| Ending::Passed)
    }),
    ("tests", |house, _, _| tests(house).map(|()| Ending::Passed)),
    ("fuzz", |house, options, _| fuzzing(house, options)),
    ("supply chain", |house, _, _| supply_chain(house).map(|()| Ending::Passed)),
];

/// Runs all steps and says whether everything that had to hold does.
pub(crate) fn run(house: &House, options: TestOptions) -> bool {
    let rows = take(STEPS, house, options);
    report::say(&format!("\n{}", report::summary(&rows)));
    good(&rows, options.missing)
}

fn take(steps: &[(&'static str, Step)], house: &House, options: TestOptions) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    let mut failed = false;
    let mut fetching = None;
    for (n, (name, step)) in steps.iter().enumerate() {
        if failed {
            let ending = Ending::NotRun("after the failure".to_owned());
            rows.push(Row { name, ending, took: Duration::ZERO });
            continue;
        }
        report::heading(&format!("{} of {}: {name}", n + 1, steps.len()));
        let start = Instant::now();
        let ending = step(house, options, &mut fetching).unwrap_or_else(|error| Ending::Failed(format!("{error:#}")));
        let took = start.elapsed();
        match &ending {
            Ending::Passed => report::say(&format!("passed in {:.1} s", took.as_secs_f64())),
            Ending::Failed(why) => report::say(&format!("FAILED after {:.1} s: {why}", took.as_secs_f64())),
            Ending::NotRun(why) => report::say(&format!("NOT RUN: {why}")),
            Ending::LeftOut(why) => report::say(&format!("left out: {why}")),
        }
        failed = matches!(ending, Ending::Failed(_));
        rows.push(Row { name, ending, took });
    }
    if let Some(fetching) = fetching {
        // Nobody needs it after a failure, but what was begun is not left to itself.
        if let Err(error) = fetching.end(house) {
            report::complain(&format!("{error:#}"));
        }
    }
    rows
}

fn good(rows: &[Row], missing: Missing) -> bool {
    rows.iter().all(|row| match row.ending {
        Ending::Passed | Ending::LeftOut(_) => true,
        Ending::NotRun(_) => missing == Missing::Allowed,
        Ending::Failed(_) => false,
    })
}

fn format(house: &House) -> anyhow::Result<()> {
    program::run(program::cargo(&house.root).args(["fmt", "--all", "--check"]))?;
    // The fuzz targets are a workspace of their own.
    program::run(program::cargo(&house.root).args(["fmt", "--manifest-path", FUZZ_MANIFEST, "--check"]))
}

fn lints(house: &House) -> anyhow::Result<()> {
    let clippy = ["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"];
    program::run(program::cargo(&house.root).args(clippy))
}

fn tests(house: &House) -> anyhow::Result<()> {
    let root = &house.root;
    if program::which("cargo-nextest").is_none() {
        report::say("`cargo-nextest` is not installed: using the slower `cargo test`");
        return program::run(program::cargo(root).args(["test", "--workspace", "--locked"]));
    }
    // Many tests wait for a process or a clock most of the time, so one more than there are processors is at work.
    let threads = std::thread::available_parallelism().map_or(2, |cores| cores.get() + 1).to_string();
    let nextest = ["nextest", "run", "--workspace", "--locked", "--no-fail-fast", "--test-threads", &threads];
    program::run(program::cargo(root).args(nextest))?;
    // The examples in documentation, which nextest does not run.
    program::run(program::cargo(root).args(["test", "--doc", "--workspace", "--locked"]))
}

fn fuzzing(house: &House, options: TestOptions) -> anyhow::Result<Ending> {
    if options.pace == Pace::Quick {
        return Ok(Ending::LeftOut("--quick".to_owned()));
    }
    let fuzzer = match fuzz::Fuzzer::have(&house.root) {
        Ok(fuzzer) => fuzzer,
        Err(error) if house.place == Place::Ci => bail!("no fuzzer: {error:#}"),
        Err(error) => return Ok(Ending::NotRun(format!("no fuzzer: {error:#}"))),
    };
    fuzzer.run(house, options.seconds, None)?;
    Ok(Ending::Passed)
}

fn supply_chain(house: &House) -> anyhow::Result<()> {
    licence::run(house)?;
    deny::run_offline_if_there(house)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn options(missing: Missing) -> TestOptions {
        TestOptions { pace: Pace::Full, seconds: Duration::from_secs(1), missing }
    }

    #[track_caller]
    fn check(steps: &[(&'static str, Step)], missing: Missing, want: &[Ending], fine: bool) {
        let house = House { root: PathBuf::from("."), place: Place::Desk };
        let rows = take(steps, &house, options(missing));
        let endings: Vec<Ending> = rows.iter().map(|row| row.ending.clone()).collect();
        assert_eq!((endings.as_slice(), good(&rows, missing)), (want, fine));
    }

    #[test]
    fn the_first_failure_ends_it() {
        let pass: Step = |_, _, _| Ok(Ending::Passed);
        let fail: Step = |_, _, _| bail!("no");
        let missing: Step = |_, _, _| Ok(Ending::NotRun("gone".to_owned()));
        let left: Step = |_, _, _| Ok(Ending::LeftOut("asked".to_owned()));
        let after = || Ending::NotRun("after the failure".to_owned());
        let gone = || Ending::NotRun("gone".to_owned());
        let asked = || Ending::LeftOut("asked".to_owned());
        check(&[("a", pass), ("b", left)], Missing::Fails, &[Ending::Passed, asked()], true);
        check(
            &[("a", pass), ("b", fail), ("c", pass)],
            Missing::Allowed,
            &[Ending::Passed, Ending::Failed("no".to_owned()), after()],
            false,
        );
        check(&[("a", missing), ("b", pass)], Missing::Fails, &[gone(), Ending::Passed], false);
        check(&[("a", missing), ("b", pass)], Missing::Allowed, &[gone(), Ending::Passed], true);
    }
}
