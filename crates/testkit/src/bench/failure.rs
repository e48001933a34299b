//! Tells why a bench could not be run to its end.

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
    // When nobody reads it, the exit code still tells.
    let _ = writeln!(std::io::stderr(), "{text}");
    ExitCode::from(2)
}
