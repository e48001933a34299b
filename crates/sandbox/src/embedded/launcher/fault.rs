//! Why a cage could not be built: the step and the kernel's answer, which is what `doctor` explains.

use std::fmt;
use std::io;

#[derive(Debug)]
pub(super) struct Fault {
    pub(super) step: String,
    pub(super) source: io::Error,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.step, self.source)
    }
}

/// Names the step an error happened in.
pub(super) trait At<T> {
    fn at(self, step: impl fmt::Display) -> Result<T, Fault>;
}

impl<T, E: Into<io::Error>> At<T> for Result<T, E> {
    fn at(self, step: impl fmt::Display) -> Result<T, Fault> {
        self.map_err(|error| Fault { step: step.to_string(), source: error.into() })
    }
}

/// A fault of our own making: the plan or the system is not what it must be.
pub(super) fn fault(step: impl fmt::Display, why: impl Into<String>) -> Fault {
    Fault { step: step.to_string(), source: io::Error::new(io::ErrorKind::InvalidData, why.into()) }
}
