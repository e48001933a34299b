//! `cargo xtask test`: every step in order, up to the first failure, with a summary.

use std::time::{Duration, Instant};

use anyhow::bail;

use crate::fuzz::FUZZ_MANIFEST;
use crate::options::{MissingTools, TestOptions, TestScope};
use crate::prerequisites::ProgramFetch;
use crate::report::{self, TestStepOutcome, TestStepRow};
use crate::workspace::{BuildEnvironment, ProjectWorkspace};
use crate::{deny, fuzz, licence, prerequisites, rules, subprocess};

type TestStep = fn(&ProjectWorkspace, TestOptions, &mut Option<ProgramFetch>) -> anyhow::Result<TestStepOutcome>;

const STEPS: &[(&str, TestStep)] = &[
    ("outside programs", |house, _, fetching| {
        prerequisites::run(house)?;
        *fetching = Some(ProgramFetch::start(house));
        Ok(TestStepOutcome::Passed)
    }),
    ("format", |house, _, _| format(house).map(|()| TestStepOutcome::Passed)),
    ("lints", |house, _, _| lints(house).map(|()| TestStepOutcome::Passed)),
    ("house rules", |house, _, _| rules::run(house).map(|()| TestStepOutcome::Passed)),
    ("fetched programs", |house, _, fetching| {
        fetching.take().map_or(Ok(()), |fetching| fetching.finish(house)).map(|()| TestStepOutcome::Passed)
    }),
    ("tests", |house, _, _| tests(house).map(|()| TestStepOutcome::Passed)),
    ("fuzz", |house, options, _| run_fuzz(house, options)),
    ("supply chain", |house, _, _| supply_chain(house).map(|()| TestStepOutcome::Passed)),
];

/// Runs all steps and says whether everything that had to hold does.
pub(crate) fn run(house: &ProjectWorkspace, options: TestOptions) -> bool {
    let rows = run_steps(STEPS, house, options);
    report::print(&format!("\n{}", report::summary(&rows)));
    is_success(&rows, options.missing)
}

fn run_steps(steps: &[(&'static str, TestStep)], house: &ProjectWorkspace, options: TestOptions) -> Vec<TestStepRow> {
    let mut rows: Vec<TestStepRow> = Vec::new();
    let mut failed = false;
    let mut fetching = None;
    for (n, (name, step)) in steps.iter().enumerate() {
        if failed {
            let ending = TestStepOutcome::NotRun("after the failure".to_owned());
            rows.push(TestStepRow { name, ending, took: Duration::ZERO });
            continue;
        }
        report::heading(&format!("{} of {}: {name}", n + 1, steps.len()));
        let start = Instant::now();
        let ending =
            step(house, options, &mut fetching).unwrap_or_else(|error| TestStepOutcome::Failed(format!("{error:#}")));
        let took = start.elapsed();
        match &ending {
            TestStepOutcome::Passed => report::print(&format!("passed in {:.1} s", took.as_secs_f64())),
            TestStepOutcome::Failed(why) => report::print(&format!("FAILED after {:.1} s: {why}", took.as_secs_f64())),
            TestStepOutcome::NotRun(why) => report::print(&format!("NOT RUN: {why}")),
            TestStepOutcome::Skipped(why) => report::print(&format!("left out: {why}")),
        }
        failed = matches!(ending, TestStepOutcome::Failed(_));
        rows.push(TestStepRow { name, ending, took });
    }
    if let Some(fetching) = fetching {
        // Nobody needs it after a failure, but what was begun is not left to itself.
        if let Err(error) = fetching.finish(house) {
            report::print_error(&format!("{error:#}"));
        }
    }
    rows
}

fn is_success(rows: &[TestStepRow], missing: MissingTools) -> bool {
    rows.iter().all(|row| match row.ending {
        TestStepOutcome::Passed | TestStepOutcome::Skipped(_) => true,
        TestStepOutcome::NotRun(_) => missing == MissingTools::Allowed,
        TestStepOutcome::Failed(_) => false,
    })
}

fn format(house: &ProjectWorkspace) -> anyhow::Result<()> {
    subprocess::run(subprocess::cargo(&house.root).args(["fmt", "--all", "--check"]))?;
    // The fuzz targets are a workspace of their own.
    subprocess::run(subprocess::cargo(&house.root).args(["fmt", "--manifest-path", FUZZ_MANIFEST, "--check"]))
}

fn lints(house: &ProjectWorkspace) -> anyhow::Result<()> {
    let clippy = ["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"];
    subprocess::run(subprocess::cargo(&house.root).args(clippy))
}

fn tests(house: &ProjectWorkspace) -> anyhow::Result<()> {
    let root = &house.root;
    if subprocess::which("cargo-nextest").is_none() {
        report::print("`cargo-nextest` is not installed: using the slower `cargo test`");
        return subprocess::run(subprocess::cargo(root).args(["test", "--workspace", "--locked"]));
    }
    // Many tests wait for a process or a clock most of the time, so one more than there are processors is at work.
    let threads = std::thread::available_parallelism().map_or(2, |cores| cores.get() + 1).to_string();
    let nextest = ["nextest", "run", "--workspace", "--locked", "--no-fail-fast", "--test-threads", &threads];
    subprocess::run(subprocess::cargo(root).args(nextest))?;
    // The examples in documentation, which nextest does not run.
    subprocess::run(subprocess::cargo(root).args(["test", "--doc", "--workspace", "--locked"]))
}

fn run_fuzz(house: &ProjectWorkspace, options: TestOptions) -> anyhow::Result<TestStepOutcome> {
    if options.scope == TestScope::Quick {
        return Ok(TestStepOutcome::Skipped("--quick".to_owned()));
    }
    let fuzzer = match fuzz::Fuzzer::find_or_install(&house.root) {
        Ok(fuzzer) => fuzzer,
        Err(error) if house.environment == BuildEnvironment::Ci => bail!("no fuzzer: {error:#}"),
        Err(error) => return Ok(TestStepOutcome::NotRun(format!("no fuzzer: {error:#}"))),
    };
    fuzzer.run(house, options.seconds, None)?;
    Ok(TestStepOutcome::Passed)
}

fn supply_chain(house: &ProjectWorkspace) -> anyhow::Result<()> {
    licence::run(house)?;
    deny::run_offline_if_installed(house)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn options(missing: MissingTools) -> TestOptions {
        TestOptions { scope: TestScope::Full, seconds: Duration::from_secs(1), missing }
    }

    #[track_caller]
    fn check(steps: &[(&'static str, TestStep)], missing: MissingTools, want: &[TestStepOutcome], fine: bool) {
        let house = ProjectWorkspace { root: PathBuf::from("."), environment: BuildEnvironment::Local };
        let rows = run_steps(steps, &house, options(missing));
        let endings: Vec<TestStepOutcome> = rows.iter().map(|row| row.ending.clone()).collect();
        assert_eq!((endings.as_slice(), is_success(&rows, missing)), (want, fine));
    }

    #[test]
    fn the_first_failure_ends_it() {
        let pass: TestStep = |_, _, _| Ok(TestStepOutcome::Passed);
        let fail: TestStep = |_, _, _| bail!("no");
        let missing: TestStep = |_, _, _| Ok(TestStepOutcome::NotRun("gone".to_owned()));
        let left: TestStep = |_, _, _| Ok(TestStepOutcome::Skipped("asked".to_owned()));
        let after = || TestStepOutcome::NotRun("after the failure".to_owned());
        let gone = || TestStepOutcome::NotRun("gone".to_owned());
        let asked = || TestStepOutcome::Skipped("asked".to_owned());
        check(&[("a", pass), ("b", left)], MissingTools::Fails, &[TestStepOutcome::Passed, asked()], true);
        check(
            &[("a", pass), ("b", fail), ("c", pass)],
            MissingTools::Allowed,
            &[TestStepOutcome::Passed, TestStepOutcome::Failed("no".to_owned()), after()],
            false,
        );
        check(&[("a", missing), ("b", pass)], MissingTools::Fails, &[gone(), TestStepOutcome::Passed], false);
        check(&[("a", missing), ("b", pass)], MissingTools::Allowed, &[gone(), TestStepOutcome::Passed], true);
    }
}
