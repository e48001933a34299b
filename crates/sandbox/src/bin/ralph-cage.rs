//! A program that is nothing but the launcher, for tests and measurements of this crate alone. `ralph` has it built in.

use std::process::ExitCode;

fn main() -> ExitCode {
    ralph_sandbox::platform::helper_entry().unwrap_or(ExitCode::from(2))
}
