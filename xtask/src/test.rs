//! `cargo xtask test`: every step in order, up to the first failure, with a summary.

use std::time::{Duration, Instant};

use anyhow::bail;

use crate::build_ahead::BuildAhead;
use crate::fuzz::FUZZ_MANIFEST;
use crate::options::{MissingTools, TestOptions, TestScope};
use crate::prerequisites::ProgramFetch;
use crate::report::{self, TestStepOutcome, TestStepRow};
use crate::workspace::{BuildEnvironment, ProjectWorkspace};
use crate::{deny, fuzz, macos, prerequisites, rules, slow_tests, subprocess, unused_dependencies};

type TestStep = fn(&ProjectWorkspace, TestOptions, &mut BackgroundJobs) -> anyhow::Result<TestStepOutcome>;

/// What runs beside the steps, from the step that starts it to the step that needs it.
#[derive(Default)]
struct BackgroundJobs {
    fetch: Option<ProgramFetch>,
    build: Option<BuildAhead>,
}

const STEPS: &[(&str, TestStep)] = &[
    ("outside programs", |workspace, options, jobs| {
        prerequisites::run(workspace)?;
        // Downloads run while other steps use the processors.
        jobs.fetch = (options.scope == TestScope::Full).then(|| ProgramFetch::start(workspace));
        Ok(TestStepOutcome::Passed)
    }),
    ("format", |workspace, _, _| format(workspace).map(|()| TestStepOutcome::Passed)),
    ("workspace rules", |workspace, _, _| rules::run(workspace).map(|()| TestStepOutcome::Passed)),
    ("lints", |workspace, options, _| lints(workspace, options.scope).map(|()| TestStepOutcome::Passed)),
    ("fetched programs", |workspace, options, jobs| match jobs.fetch.take() {
        Some(fetching) => fetching.finish(workspace).map(|()| TestStepOutcome::Passed),
        None => Ok(left_out(options.scope)),
    }),
    ("tests", |workspace, options, jobs| {
        jobs.build = (options.scope == TestScope::Full).then(|| BuildAhead::start(workspace));
        tests(workspace, options.scope).map(|()| TestStepOutcome::Passed)
    }),
    ("unused dependencies", |workspace, options, jobs| {
        finish_build(jobs);
        unused_dependencies::check(workspace, options.scope)
    }),
    // Needs the crates of every platform, which a quick test does not fetch.
    ("supply chain", |workspace, options, _| match options.scope {
        TestScope::Quick => Ok(left_out(options.scope)),
        TestScope::Full => deny::check_without_advisories(workspace),
    }),
    ("fuzz", |workspace, options, _| run_fuzz(workspace, options)),
    ("macOS", |workspace, options, _| match options.scope {
        TestScope::Quick => Ok(left_out(options.scope)),
        TestScope::Full => macos::check(workspace),
    }),
];

/// Runs all steps and returns whether all that are required have passed.
pub(crate) fn run(workspace: &ProjectWorkspace, options: TestOptions) -> bool {
    let rows = run_steps(STEPS, workspace, options);
    report::print(&format!("\n{}", report::summary(&rows)));
    is_success(&rows, options.missing)
}

fn run_steps(
    steps: &[(&'static str, TestStep)],
    workspace: &ProjectWorkspace,
    options: TestOptions,
) -> Vec<TestStepRow> {
    let mut rows: Vec<TestStepRow> = Vec::new();
    let mut failed = false;
    let mut jobs = BackgroundJobs::default();
    for (n, (name, step)) in steps.iter().enumerate() {
        if failed {
            let ending = TestStepOutcome::NotRun("after the failure".to_owned());
            rows.push(TestStepRow { name, ending, took: Duration::ZERO });
            continue;
        }
        report::heading(&format!("{} of {}: {name}", n + 1, steps.len()));
        let start = Instant::now();
        let ending =
            step(workspace, options, &mut jobs).unwrap_or_else(|error| TestStepOutcome::Failed(format!("{error:#}")));
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
    // Not needed after a failure, but what was started does not outlive the steps.
    if let Some(Err(error)) = jobs.fetch.take().map(|fetch| fetch.finish(workspace)) {
        report::print_error(&format!("{error:#}"));
    }
    finish_build(&mut jobs);
    rows
}

fn finish_build(jobs: &mut BackgroundJobs) {
    if let Some(build) = jobs.build.take() {
        build.finish();
    }
}

fn is_success(rows: &[TestStepRow], missing: MissingTools) -> bool {
    rows.iter().all(|row| match row.ending {
        TestStepOutcome::Passed | TestStepOutcome::Skipped(_) => true,
        TestStepOutcome::NotRun(_) => missing == MissingTools::Allowed,
        TestStepOutcome::Failed(_) => false,
    })
}

fn format(workspace: &ProjectWorkspace) -> anyhow::Result<()> {
    subprocess::run(subprocess::cargo(&workspace.root).args(["fmt", "--all", "--check"]))?;
    // The fuzz targets are a workspace of their own.
    subprocess::run(subprocess::cargo(&workspace.root).args(["fmt", "--manifest-path", FUZZ_MANIFEST, "--check"]))
}

fn lints(workspace: &ProjectWorkspace, scope: TestScope) -> anyhow::Result<()> {
    let mut clippy = subprocess::cargo(&workspace.root);
    clippy.args(["clippy", "--workspace", "--all-targets", "--locked"]).args(network(scope));
    subprocess::run(clippy.args(["--", "-D", "warnings"]))
}

/// A quick test never waits for the network.
fn network(scope: TestScope) -> &'static [&'static str] {
    match scope {
        TestScope::Quick => &["--offline"],
        TestScope::Full => &[],
    }
}

fn left_out(scope: TestScope) -> TestStepOutcome {
    match scope {
        TestScope::Quick => TestStepOutcome::Skipped("--quick".to_owned()),
        TestScope::Full => TestStepOutcome::Passed,
    }
}

fn tests(workspace: &ProjectWorkspace, scope: TestScope) -> anyhow::Result<()> {
    let root = &workspace.root;
    if subprocess::which("cargo-nextest").is_none() {
        report::print("`cargo-nextest` is not installed: using the slower `cargo test`, which leaves nothing out");
        return subprocess::run(subprocess::cargo(root).args(["test", "--workspace", "--locked"]).args(network(scope)));
    }
    let profile = match scope {
        TestScope::Quick => "quick",
        TestScope::Full => "default",
    };
    // Many tests wait for a process or a clock most of the time, so twice as many run as there are processors.
    let threads = std::thread::available_parallelism().map_or(4, |cores| cores.get() * 2).to_string();
    let mut nextest = subprocess::cargo(root);
    nextest.args(["nextest", "run", "--profile", profile, "--workspace", "--locked", "--no-fail-fast"]);
    let ended = subprocess::run(nextest.args(["--test-threads", &threads]).args(network(scope)));
    // The report exists after a failure too, unless nothing was built. nextest writes it there wherever cargo builds.
    if let Err(error) = slow_tests::print(&root.join("target/nextest").join(profile).join("junit.xml")) {
        report::print_error(&format!("the slowest tests are not known: {error:#}"));
    }
    ended?;
    if scope == TestScope::Quick {
        report::print("LEFT OUT: the examples in documentation, and the tests that .config/nextest.toml names:");
        report::print(quick_filter(&workspace.read(".config/nextest.toml")?).unwrap_or("(it names none)"));
        return Ok(());
    }
    // The examples in documentation, which nextest does not run.
    subprocess::run(subprocess::cargo(root).args(["test", "--doc", "--workspace", "--locked"]))
}

/// Returns what the quick profile does not run, as the configuration has it.
fn quick_filter(config: &str) -> Option<&str> {
    let profile = config.split_once("\n[profile.quick]\n")?.1;
    let filter = profile.split_once("default-filter = '''\n")?.1.split_once("'''")?.0;
    Some(filter.trim_end())
}

fn run_fuzz(workspace: &ProjectWorkspace, options: TestOptions) -> anyhow::Result<TestStepOutcome> {
    if options.scope == TestScope::Quick {
        return Ok(left_out(options.scope));
    }
    let fuzzer = match fuzz::Fuzzer::find_or_install(&workspace.root) {
        Ok(fuzzer) => fuzzer,
        Err(error) if workspace.environment == BuildEnvironment::Ci => bail!("no fuzzer: {error:#}"),
        Err(error) => return Ok(TestStepOutcome::NotRun(format!("no fuzzer: {error:#}"))),
    };
    fuzzer.run(workspace, options.seconds, None)?;
    Ok(TestStepOutcome::Passed)
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
        let workspace = ProjectWorkspace { root: PathBuf::from("."), environment: BuildEnvironment::Local };
        let rows = run_steps(steps, &workspace, options(missing));
        let endings: Vec<TestStepOutcome> = rows.iter().map(|row| row.ending.clone()).collect();
        assert_eq!((endings.as_slice(), is_success(&rows, missing)), (want, fine));
    }

    #[test]
    fn the_first_failure_ends_the_run() {
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

    #[test]
    fn the_quick_filter_is_read_from_the_config() {
        let config = "[profile.default]\ndefault-filter = '''\nall()\n'''\n[profile.quick]\na = 1\ndefault-filter = '''\n  not (a + b)\n'''\n";
        assert_eq!(quick_filter(config), Some("  not (a + b)"));
        assert_eq!(quick_filter("[profile.default]\n"), None);
        let ours = ProjectWorkspace::locate().read(".config/nextest.toml").expect("it is there");
        assert!(quick_filter(&ours).is_some_and(|filter| filter.contains("crash::killed")));
    }
}
