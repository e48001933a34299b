//! Defines the errors that are shown to the user: what failed, why, and what to do next.

use std::fmt;

use ralph_core::exit_code::RalphExitCode;
use ralph_engine::setup::SetupError;
use serde_json::json;

use crate::terminal_output::{BOLD, RED, Ui, paint};

/// An error of a command, with its exit code and its next step.
#[derive(Debug)]
pub(crate) struct CliError {
    pub(crate) exit: RalphExitCode,
    pub(crate) message: String,
    pub(crate) causes: Vec<String>,
    pub(crate) hint: Option<String>,
    pub(crate) log: Option<String>,
}

impl CliError {
    pub(crate) fn new(exit: RalphExitCode, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), causes: Vec::new(), hint: None, log: None }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(RalphExitCode::Usage, message)
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds an error and all its causes.
    pub(crate) fn with_cause(mut self, error: &dyn std::error::Error) -> Self {
        let mut cause = Some(error);
        while let Some(error) = cause {
            self.causes.push(error.to_string());
            cause = error.source();
        }
        self
    }

    /// Converts an error and all its causes.
    pub(crate) fn from_error(exit: RalphExitCode, error: &dyn std::error::Error) -> Self {
        let mut failure = Self::new(exit, error.to_string());
        let mut source = error.source();
        while let Some(cause) = source {
            failure.causes.push(cause.to_string());
            source = cause.source();
        }
        failure
    }

    pub(crate) fn report(&self, ui: &mut Ui) {
        if ui.json() {
            ui.print_json(&json!({"error": {"kind": self.exit, "message": self.message, "causes": self.causes,
                "hint": self.hint, "log": self.log}}));
            return;
        }
        ui.print_message(&format!("{} {}", paint(RED, "ralph:"), self.message));
        for cause in &self.causes {
            ui.print_message(&format!("  caused by: {cause}"));
        }
        if let Some(hint) = &self.hint {
            ui.print_message("");
            ui.print_message(&format!("{} {hint}", paint(BOLD, "hint:")));
        }
        if let Some(log) = &self.log {
            ui.print_message(&format!("log: {log}"));
        }
    }
}

impl fmt::Display for CliError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<ralph_engine::Error> for CliError {
    fn from(error: ralph_engine::Error) -> Self {
        let mut failure = Self::from_error(error.exit(), &error);
        failure.hint = error.hint();
        // The wrapper "sandbox trouble" has no information of its own: the wrapped error is the message.
        if matches!(error, ralph_engine::Error::Sandbox(_) | ralph_engine::Error::Git(_)) && !failure.causes.is_empty()
        {
            failure.message = failure.causes.remove(0);
        }
        failure
    }
}

impl From<SetupError> for CliError {
    fn from(error: SetupError) -> Self {
        match error {
            SetupError::Engine(error) => error.into(),
            error => {
                let mut failure = Self::from_error(error.exit(), &error);
                failure.hint = error.hint();
                failure
            }
        }
    }
}

/// The result of every command: the exit code to end with.
pub(crate) type CliResult = Result<RalphExitCode, CliError>;
