//! Defines a finding: one broken rule at one place.

use std::fmt;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RuleFinding {
    pub path: String,
    pub line: usize,
    pub what: String,
}

impl RuleFinding {
    pub(super) fn new(path: &str, line: usize, what: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, what: what.into() }
    }
}

impl fmt::Display for RuleFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.what)
    }
}

/// Returns the number of the line that contains the byte at `at`, from 1.
pub(super) fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

/// Returns what follows the last dot of a path.
pub(super) fn extension(path: &str) -> &str {
    path.rsplit_once('.').map_or("", |(_, ending)| ending)
}

/// Returns whether only tests use a file: under `tests/` or `benches/`, or the `tests.rs` beside a module.
pub(super) fn is_test_file(path: &str) -> bool {
    path.split('/').any(|part| ["tests", "benches", "tests.rs"].contains(&part))
}
