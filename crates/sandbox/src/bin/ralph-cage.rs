//! A program that is nothing but the launcher, for tests and measurements of this crate alone. `ralph` has it built in.

use std::process::ExitCode;

fn main() -> ExitCode {
    #[cfg(target_os = "linux")]
    if let Some(code) = ralph_sandbox::embedded::launcher_entry() {
        return code;
    }
    ExitCode::from(2)
}
