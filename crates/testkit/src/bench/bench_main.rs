//! Runs a bench from its command line to its exit code.

use std::error::Error;
use std::io::{self, Write as _};
use std::process::ExitCode;

use tokio::runtime::{Builder, Runtime};

use super::failure::report_failure;
use super::markdown_report::BenchPage;
use super::option_list::{self, BenchOption};
use super::parse_options::{self, BenchArguments, BenchCommand};
use super::report::BenchReport;

/// The result of every part of a bench; errors are only printed to a terminal.
pub type BenchResult<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// Exit codes; a bench that could not measure ends with that of [`report_failure`].
const TARGETS_MET: u8 = 0;
const TARGET_MISSED: u8 = 1;
const INVALID_USAGE: u8 = 2;

/// A bench as a program.
#[derive(Debug)]
pub struct BenchProgram {
    pub name: &'static str,
    pub options: &'static [BenchOption],
    /// Written on `--write`.
    pub page: Option<BenchPage>,
}

impl BenchProgram {
    /// Measures, prints the report, and returns the exit code: 0 if no target was missed, 1 if one was, 2 if the
    /// command line is invalid or nothing could be measured.
    pub fn run(
        &self,
        words: impl Iterator<Item = String>,
        measure: impl FnOnce(&BenchArguments) -> BenchResult<BenchReport>,
    ) -> ExitCode {
        let usage = || option_list::usage(self.name, self.options);
        let arguments = match parse_options::parse(self.options, words) {
            Ok(BenchCommand::Measure(arguments)) => arguments,
            Ok(BenchCommand::Help) => return print_usage(&usage(), TARGETS_MET),
            Err(problem) => return print_usage(&format!("error: {problem}\n\n{}", usage()), INVALID_USAGE),
        };
        match measure(&arguments).and_then(|report| self.write_page(&arguments, &report).map(|()| report)) {
            Ok(report) => {
                let text = if arguments.has(&BenchOption::JSON) { report.json() } else { report.text() };
                // If stdout is closed, the exit code still says whether the targets were met.
                let _ = io::stdout().write_all(text.as_bytes());
                ExitCode::from(exit_status(&arguments, &report))
            }
            Err(error) => report_failure(&*error),
        }
    }

    fn write_page(&self, arguments: &BenchArguments, report: &BenchReport) -> BenchResult<()> {
        match (&self.page, arguments.path(&BenchOption::WRITE)) {
            (Some(page), Some(dir)) => Ok(page.write(report, &dir)?),
            _ => Ok(()),
        }
    }
}

/// Returns a runtime with as many threads on every machine.
pub fn bench_runtime() -> io::Result<Runtime> {
    Builder::new_multi_thread().worker_threads(2).enable_all().build()
}

fn exit_status(arguments: &BenchArguments, report: &BenchReport) -> u8 {
    let incomplete = arguments.has(&BenchOption::STRICT) && report.figures.unmeasured() > 0;
    if report.passed() && !incomplete { TARGETS_MET } else { TARGET_MISSED }
}

fn print_usage(text: &str, status: u8) -> ExitCode {
    // If stderr is closed, the exit code still reports invalid usage.
    let _ = io::stderr().write_all(text.as_bytes());
    ExitCode::from(status)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::FigureTarget;

    #[test]
    fn exit_statuses() {
        #[track_caller]
        fn check(line: &str, values: &[Result<f64, &str>], want: u8) {
            let words = line.split_whitespace().map(str::to_owned);
            let Ok(BenchCommand::Measure(arguments)) = parse_options::parse(&[BenchOption::STRICT], words) else {
                panic!("`{line}` is a command line")
            };
            let mut report = BenchReport::new("", &[]);
            for value in values {
                report.figures.add_result("n", value.map_err(str::to_owned), FigureTarget::AtMost(1.0), "ms");
            }
            assert_eq!(exit_status(&arguments, &report), want, "{line} {values:?}");
        }
        check("", &[], TARGETS_MET);
        check("", &[Ok(1.0)], TARGETS_MET);
        check("", &[Ok(1.0), Ok(2.0)], TARGET_MISSED);
        check("", &[Err("no")], TARGETS_MET);
        check("", &[Err("no"), Ok(2.0)], TARGET_MISSED);
        check("--strict", &[Ok(1.0)], TARGETS_MET);
        check("--strict", &[Ok(1.0), Err("no")], TARGET_MISSED);
    }
}
