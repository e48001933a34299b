//! An agent that prints plain text and no result: its exit code says how it ended.

use super::ear::{Ear, one_line};
use super::said::{Finished, Reader, Said};

/// Reads plain text. The last words are the last lines.
#[derive(Debug, Default)]
pub(super) struct Plain {
    ear: Ear,
}

/// How many bytes of the last lines are kept.
const KEPT: usize = 4 << 10;

impl Reader for Plain {
    fn line(&mut self, line: &str) -> Vec<Said> {
        let line = one_line(line);
        if line.is_empty() {
            return Vec::new();
        }
        let words = format!("{}\n{line}", self.ear.words());
        let last = crate::text::tail(&words, usize::MAX, KEPT).trim_start();
        // What is kept is whole lines, so the reader of a summary does not begin in the middle of a word.
        let last = if words.len() > KEPT { last.split_once('\n').map_or(last, |(_, rest)| rest) } else { last };
        self.ear.text(last);
        vec![Said::Text(line)]
    }

    fn finished(&self) -> Option<&Finished> {
        None
    }

    fn text(&self) -> String {
        self.ear.words()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept() {
        let mut reader = Plain::default();
        assert_eq!(reader.line(" \u{1b}[1mone\u{1b}[0m "), [Said::Text("one".to_owned())]);
        assert_eq!(reader.line("  "), []);
        reader.line("two");
        assert_eq!(reader.text(), "one\ntwo");
        for n in 0..1_000 {
            reader.line(&format!("line {n}"));
        }
        let text = reader.text();
        assert!(text.len() <= KEPT && text.starts_with("line ") && text.ends_with("line 999"), "{text}");
    }
}
