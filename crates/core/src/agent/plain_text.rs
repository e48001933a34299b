//! Reads the output of an agent that prints plain text and no result: only its exit code tells how it ended.

use super::output_event::{AgentOutputEvent, AgentOutputReader, AgentResult};
use super::stream_state::{AgentStreamState, one_line};

/// Reads plain text and keeps the last lines.
#[derive(Debug, Default)]
pub(super) struct PlainTextReader {
    state: AgentStreamState,
}

/// How many bytes of the last lines are kept.
const MAX_TAIL_BYTES: usize = 4 << 10;

impl AgentOutputReader for PlainTextReader {
    fn read_line(&mut self, line: &str) -> Vec<AgentOutputEvent> {
        let line = one_line(line);
        if line.is_empty() {
            return Vec::new();
        }
        let words = format!("{}\n{line}", self.state.last_text());
        let last = crate::text::tail(&words, usize::MAX, MAX_TAIL_BYTES).trim_start();
        // Whole lines are kept, so that a summary does not begin in the middle of a word.
        let last =
            if words.len() > MAX_TAIL_BYTES { last.split_once('\n').map_or(last, |(_, rest)| rest) } else { last };
        self.state.record_text(last);
        vec![AgentOutputEvent::Text(line)]
    }

    fn session_result(&self) -> Option<&AgentResult> {
        None
    }

    fn last_text(&self) -> String {
        self.state.last_text()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_kept() {
        let mut reader = PlainTextReader::default();
        assert_eq!(reader.read_line(" \u{1b}[1mone\u{1b}[0m "), [AgentOutputEvent::Text("one".to_owned())]);
        assert_eq!(reader.read_line("  "), []);
        reader.read_line("two");
        assert_eq!(reader.last_text(), "one\ntwo");
        for n in 0..1_000 {
            reader.read_line(&format!("line {n}"));
        }
        let text = reader.last_text();
        assert!(text.len() <= MAX_TAIL_BYTES && text.starts_with("line ") && text.ends_with("line 999"), "{text}");
    }
}
