//! The problems in the text of a task, each with its position and a hint.

use std::fmt;

use crate::source_span::Span;

/// Every problem found in one task text, in the order of the text. Never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskError {
    pub problems: Vec<TaskProblem>,
}

/// One thing that is wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskProblem {
    pub kind: TaskProblemKind,
    pub span: Span,
    /// 1-based, in characters, as editors count.
    pub line: usize,
    pub column: usize,
    /// The front-matter key it is about, if there is one.
    pub key: Option<String>,
    pub message: String,
    pub hint: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TaskProblemKind {
    TooLarge,
    TooDeep,
    NoFrontMatter,
    Unclosed,
    Syntax,
    UnknownKey,
    BadValue,
    NoTaskId,
}

impl TaskProblem {
    pub(crate) fn new(kind: TaskProblemKind, source: &str, span: Span, message: impl Into<String>) -> Self {
        let (line, column) = span.line_column(source);
        Self { kind, span, line, column, key: None, message: message.into(), hint: None }
    }

    pub(crate) fn with_key(mut self, key: &str) -> Self {
        self.key = Some(key.to_owned());
        self
    }

    pub(crate) fn with_hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for TaskProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.message)
    }
}

impl TaskError {
    pub fn span(&self) -> Option<Span> {
        self.problems.first().map(|problem| problem.span)
    }

    pub fn hint(&self) -> Option<&str> {
        self.problems.iter().find_map(|problem| problem.hint.as_deref())
    }
}

impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.problems.as_slice() {
            [] => f.write_str("the task is not readable"),
            [one] => write!(f, "{one}"),
            [first, rest @ ..] => write!(f, "{first} (and {} more)", rest.len()),
        }
    }
}

impl std::error::Error for TaskError {}
