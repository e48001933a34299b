//! Reports why a bench could not finish.

use std::error::Error;
use std::io::Write as _;
use std::process::ExitCode;

/// Writes an error with all its causes to stderr, and returns the exit code of a bench that measured nothing.
pub fn report_failure(error: &(dyn Error + 'static)) -> ExitCode {
    let mut text = format!("error: {error}");
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    // If stderr is closed, the exit code still reports the failure.
    let _ = writeln!(std::io::stderr(), "{text}");
    ExitCode::from(2)
}
