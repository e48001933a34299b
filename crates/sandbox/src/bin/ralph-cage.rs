//! Runs only the launcher, for this crate's tests and benchmarks. `ralph` has the launcher built in.

use std::process::ExitCode;

fn main() -> ExitCode {
    ralph_sandbox::platform::helper_entry().unwrap_or(ExitCode::from(2))
}
