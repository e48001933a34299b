//! Runs the project's chores, as `cargo xtask …`.
//!
//! Each chore is one file. What a chore checks is defined only here: `.ci/run` only calls `cargo xtask test`.

#![expect(clippy::disallowed_methods, reason = "chores read the environment of their caller")]

mod bench;
mod build_ahead;
mod deny;
mod fuzz;
mod macos;
mod module_list;
mod options;
mod prerequisites;
mod report;
mod rules;
mod slow_tests;
mod subprocess;
mod test;
mod third_party;
mod tools;
mod unused_dependencies;
mod workspace;

use std::process::ExitCode;

use options::{USAGE, XtaskCommand};
use workspace::ProjectWorkspace;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let chore = match options::parse(&arguments) {
        Ok(chore) => chore,
        Err(wrong) => {
            report::print_error(&format!("xtask: {wrong}\n\n{USAGE}"));
            return ExitCode::from(2);
        }
    };
    let workspace = ProjectWorkspace::locate();
    let done = match chore {
        XtaskCommand::Test(options) => {
            return if test::run(&workspace, options) { ExitCode::SUCCESS } else { ExitCode::FAILURE };
        }
        XtaskCommand::Fuzz { seconds, target } => fuzz::run(&workspace, seconds, target.as_deref()),
        XtaskCommand::BuildAhead => build_ahead::run(&workspace),
        XtaskCommand::Bench { bench, arguments } => bench::run(&workspace, bench, &arguments),
        XtaskCommand::Rules => rules::run(&workspace),
        XtaskCommand::Docs => module_list::write(&workspace),
        XtaskCommand::Macos => macos::run(&workspace),
        XtaskCommand::Deny => deny::run(&workspace),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report::print_error(&format!("xtask: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
