//! Keeps the tail of the log: the lines that `ralph logs` prints, with a view that follows until the user scrolls.

use std::collections::VecDeque;

use jiff::Timestamp;
use ralph_core::event::EventLine;
use ralph_core::run::RunState;
use ralph_web::view::event_text;

use super::text_layout;

/// How many events are kept to scroll through; the file holds the rest.
const MAX_ROWS: usize = 5000;

/// One row of the log.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LogPanelRow {
    /// `None` for a row that continues the one above.
    pub(super) at: Option<Timestamp>,
    pub(super) text: String,
}

/// Rows with numbers that never change, so that the rows in view stay in place while more arrive.
#[derive(Debug, Default)]
pub(super) struct LogPanel {
    /// Events that are not rendered as rows yet; most of a long history never is.
    unrendered: VecDeque<EventLine>,
    rows: VecDeque<LogPanelRow>,
    /// How many rows were dropped before the first that is kept.
    dropped_rows: usize,
    /// Events that never became rows.
    skipped: usize,
    /// The number after the last row in view; `None` follows the newest.
    scrolled_to: Option<usize>,
}

impl LogPanel {
    pub(super) fn push(&mut self, line: EventLine) {
        if self.unrendered.len() == MAX_ROWS {
            self.unrendered.pop_front();
            self.skipped += 1;
        }
        self.unrendered.push_back(line);
    }

    /// Renders new events as rows.
    pub(super) fn render_new(&mut self, state: Option<&RunState>) {
        for line in std::mem::take(&mut self.unrendered) {
            let Some(written) = event_text(&line.event, state) else { continue };
            let body = ralph_core::text::strip_control(&written.words());
            for (index, part) in body.split('\n').enumerate() {
                let at = (index == 0).then_some(line.at);
                let part = if index == 0 { part } else { part.trim_start() };
                self.rows.push_back(LogPanelRow { at, text: text_layout::single_line(part) });
            }
        }
        while self.rows.len() > MAX_ROWS {
            self.rows.pop_front();
            self.dropped_rows += 1;
        }
    }

    fn end(&self) -> usize {
        self.dropped_rows + self.rows.len()
    }

    /// Moves the view by a number of rows; `page` is how many are visible at once. Reaching the end follows again.
    pub(super) fn scroll(&mut self, rows: isize, page: usize) {
        let first = self.end().min(self.dropped_rows + page);
        let to = self.scrolled_to.unwrap_or_else(|| self.end()).saturating_add_signed(rows).max(first);
        self.scrolled_to = (to < self.end()).then_some(to);
    }

    pub(super) fn follow(&mut self) {
        self.scrolled_to = None;
    }

    pub(super) fn is_following(&self) -> bool {
        self.scrolled_to.is_none()
    }

    /// Returns the number of rows below the view.
    pub(super) fn rows_below(&self) -> usize {
        self.scrolled_to.map_or(0, |stopped| self.end().saturating_sub(stopped))
    }

    /// Returns whether the file has more than can be scrolled to.
    pub(super) fn is_truncated(&self) -> bool {
        self.dropped_rows > 0 || self.skipped > 0
    }

    /// Returns the rows in view.
    pub(super) fn view(&self, page: usize) -> impl Iterator<Item = &LogPanelRow> {
        let end = self.scrolled_to.unwrap_or_else(|| self.end()).max((self.dropped_rows + page).min(self.end()));
        let end = end - self.dropped_rows;
        self.rows.range(end.saturating_sub(page)..end)
    }
}

#[cfg(test)]
mod tests {
    use ralph_core::event::{Event, EventLogLevel};
    use ralph_core::redact::Redactor;

    use super::*;

    fn push_rows(log: &mut LogPanel, from: u64, to: u64) {
        for seq in from..to {
            let event = Event::Log { level: EventLogLevel::Info, text: Redactor::new([]).mask(&format!("row {seq}")) };
            log.push(EventLine { seq, at: Timestamp::UNIX_EPOCH, passed_ms: None, event });
        }
        log.render_new(None);
    }

    #[track_caller]
    fn check(log: &LogPanel, want: &[&str], below: usize) {
        let seen: Vec<&str> = log.view(3).map(|row| row.text.trim()).collect();
        assert_eq!((seen.as_slice(), log.rows_below(), log.is_following()), (want, below, below == 0));
    }

    #[test]
    fn follows_until_scrolled() {
        let mut log = LogPanel::default();
        check(&log, &[], 0);
        push_rows(&mut log, 0, 2);
        check(&log, &["row 0", "row 1"], 0);
        log.scroll(-1, 3);
        check(&log, &["row 0", "row 1"], 0);
        push_rows(&mut log, 2, 6);
        check(&log, &["row 3", "row 4", "row 5"], 0);
        log.scroll(-1, 3);
        check(&log, &["row 2", "row 3", "row 4"], 1);
        // The rows in view stay.
        push_rows(&mut log, 6, 9);
        check(&log, &["row 2", "row 3", "row 4"], 4);
        log.scroll(-100, 3);
        check(&log, &["row 0", "row 1", "row 2"], 6);
        log.scroll(2, 3);
        check(&log, &["row 2", "row 3", "row 4"], 4);
        log.scroll(100, 3);
        check(&log, &["row 6", "row 7", "row 8"], 0);
    }

    #[test]
    fn is_bounded() {
        let mut log = LogPanel::default();
        push_rows(&mut log, 0, 3);
        log.scroll(-1, 1);
        push_rows(&mut log, 3, 20_000);
        assert!(log.rows.len() <= MAX_ROWS && log.unrendered.is_empty() && log.is_truncated());
        // The rows that were in view are dropped; the oldest remaining one is shown instead.
        let seen: Vec<&str> = log.view(2).map(|row| row.text.trim()).collect();
        assert_eq!(seen, ["row 15000", "row 15001"]);
        log.follow();
        check(&log, &["row 19997", "row 19998", "row 19999"], 0);
    }
}
