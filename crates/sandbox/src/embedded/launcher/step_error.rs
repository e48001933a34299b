//! Describes why a cage could not be built: the failed step and the kernel's error, which `doctor` explains.

use std::fmt;
use std::io;

#[derive(Debug)]
pub(super) struct StepError {
    pub(super) step: String,
    pub(super) source: io::Error,
}

impl fmt::Display for StepError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.step, self.source)
    }
}

/// Adds the step in which an error happened.
pub(super) trait StepContext<T> {
    fn at_step(self, step: impl fmt::Display) -> Result<T, StepError>;
}

impl<T, E: Into<io::Error>> StepContext<T> for Result<T, E> {
    fn at_step(self, step: impl fmt::Display) -> Result<T, StepError> {
        self.map_err(|error| StepError { step: step.to_string(), source: error.into() })
    }
}

/// Returns an error that the kernel did not report: the plan or the system is not as it must be.
pub(super) fn step_error(step: impl fmt::Display, why: impl Into<String>) -> StepError {
    StepError { step: step.to_string(), source: io::Error::new(io::ErrorKind::InvalidData, why.into()) }
}
