//! The launcher and the attacking programs alone, for the tests of this crate. `ralph` has them built in.

use std::process::ExitCode;

fn main() -> ExitCode {
    #[cfg(target_os = "linux")]
    if let Some(code) = ralph_sandbox::embedded::launcher_entry().or_else(ralph_redteam::payload_entry) {
        return code;
    }
    ExitCode::from(2)
}
