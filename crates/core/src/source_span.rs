//! A place in a source text, in bytes.

use serde::{Deserialize, Serialize};

/// A half-open byte range of a source text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Span {
    pub start: usize,
    pub end: usize,
}

impl Span {
    pub fn new(start: usize, end: usize) -> Self {
        Self { start, end: end.max(start) }
    }

    /// Returns the text the span covers, or the empty string when it does not fit the source.
    pub fn of(self, source: &str) -> &str {
        source.get(self.start..self.end).unwrap_or("")
    }

    /// Returns the 1-based line and column (in characters) where the span starts.
    pub fn line_column(self, source: &str) -> (usize, usize) {
        let mut end = self.start.min(source.len());
        while !source.is_char_boundary(end) {
            end -= 1;
        }
        let before = &source[..end];
        let line = before.bytes().filter(|byte| *byte == b'\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
        (line, column)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_columns() {
        let source = "añ\nb\n";
        for (start, want) in [(0, (1, 1)), (1, (1, 2)), (2, (1, 2)), (3, (1, 3)), (4, (2, 1)), (99, (3, 1))] {
            assert_eq!(Span::new(start, start).line_column(source), want, "at {start}");
        }
    }
}
