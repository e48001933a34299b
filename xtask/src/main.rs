//! The project's chores, as `cargo xtask …`.
//!
//! Each chore is one file. What a chore checks lives here and nowhere else: `.ci/run` only calls `cargo xtask test`.

mod bench;
mod deny;
mod fuzz;
mod house;
mod licence;
mod options;
mod outside;
mod peers;
mod program;
mod report;
mod rules;
mod test;
mod tools;

use std::process::ExitCode;

use house::House;
use options::{Chore, USAGE};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let chore = match options::parse(&arguments) {
        Ok(chore) => chore,
        Err(wrong) => {
            report::complain(&format!("xtask: {wrong}\n\n{USAGE}"));
            return ExitCode::from(2);
        }
    };
    let house = House::here();
    let done = match chore {
        Chore::Test(options) => return if test::run(&house, options) { ExitCode::SUCCESS } else { ExitCode::FAILURE },
        Chore::Fuzz { seconds, target } => fuzz::run(&house, seconds, target.as_deref()),
        Chore::Bench { bench, arguments } => bench::run(&house, bench, &arguments),
        Chore::Rules => rules::run(&house),
        Chore::Deny => deny::run(&house),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            report::complain(&format!("xtask: {error:#}"));
            ExitCode::FAILURE
        }
    }
}
