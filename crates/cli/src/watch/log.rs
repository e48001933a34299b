//! The tail of the log: the lines `ralph logs` prints, with a view that follows until somebody scrolls.

use std::collections::VecDeque;

use jiff::Timestamp;
use ralph_core::event::Line;
use ralph_core::run::State;

use super::text;
use crate::render::events;

/// How many events are kept to scroll through; the file holds the rest.
const KEPT: usize = 5000;

/// One row of the log.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Row {
    /// `None` for a row that goes on with the one above.
    pub(super) at: Option<Timestamp>,
    pub(super) text: String,
}

/// Rows by a number that never changes, so that what is looked at stays where it is while more arrives.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// Events that were folded and not written as rows yet: most of a long history never is.
    fresh: VecDeque<Line>,
    rows: VecDeque<Row>,
    /// How many rows there were before the first that is kept.
    gone: usize,
    /// Events that never became rows.
    skipped: usize,
    /// The number after the last row in view; `None` follows the newest.
    stopped: Option<usize>,
}

impl Log {
    pub(super) fn push(&mut self, line: Line) {
        if self.fresh.len() == KEPT {
            self.fresh.pop_front();
            self.skipped += 1;
        }
        self.fresh.push_back(line);
    }

    /// Writes rows for what is new.
    pub(super) fn settle(&mut self, state: Option<&State>) {
        for line in std::mem::take(&mut self.fresh) {
            let Some(written) = events::line(&line, state) else { continue };
            // The first word is the time, in the zone of the machine; it is written where it is drawn.
            let written = ralph_core::text::plain(&written);
            let body = written.split_once(' ').map_or("", |(_, body)| body);
            for (index, part) in body.split('\n').enumerate() {
                let at = (index == 0).then_some(line.at);
                let part = if index == 0 { part } else { part.trim_start() };
                self.rows.push_back(Row { at, text: text::line(part) });
            }
        }
        while self.rows.len() > KEPT {
            self.rows.pop_front();
            self.gone += 1;
        }
    }

    fn end(&self) -> usize {
        self.gone + self.rows.len()
    }

    /// Moves the view by so many rows; `page` is how many are seen at once. Reaching the end follows again.
    pub(super) fn scroll(&mut self, rows: isize, page: usize) {
        let first = self.end().min(self.gone + page);
        let to = self.stopped.unwrap_or_else(|| self.end()).saturating_add_signed(rows).max(first);
        self.stopped = (to < self.end()).then_some(to);
    }

    pub(super) fn follow(&mut self) {
        self.stopped = None;
    }

    pub(super) fn following(&self) -> bool {
        self.stopped.is_none()
    }

    /// Counts the rows that came after what is in view.
    pub(super) fn below(&self) -> usize {
        self.stopped.map_or(0, |stopped| self.end().saturating_sub(stopped))
    }

    /// Tells whether the file holds more than can be scrolled to.
    pub(super) fn is_cut(&self) -> bool {
        self.gone > 0 || self.skipped > 0
    }

    /// Returns the rows in view.
    pub(super) fn view(&self, page: usize) -> impl Iterator<Item = &Row> {
        let end = self.stopped.unwrap_or_else(|| self.end()).max((self.gone + page).min(self.end()));
        let end = end - self.gone;
        self.rows.range(end.saturating_sub(page)..end)
    }
}

#[cfg(test)]
mod tests {
    use ralph_core::event::{Event, Level};

    use super::*;

    fn told(log: &mut Log, from: u64, to: u64) {
        for seq in from..to {
            let event = Event::Log { level: Level::Info, text: format!("row {seq}") };
            log.push(Line { seq, at: Timestamp::UNIX_EPOCH, passed_ms: None, event });
        }
        log.settle(None);
    }

    #[track_caller]
    fn check(log: &Log, want: &[&str], below: usize) {
        let seen: Vec<&str> = log.view(3).map(|row| row.text.trim()).collect();
        assert_eq!((seen.as_slice(), log.below(), log.following()), (want, below, below == 0));
    }

    #[test]
    fn follows_until_scrolled() {
        let mut log = Log::default();
        check(&log, &[], 0);
        told(&mut log, 0, 2);
        check(&log, &["row 0", "row 1"], 0);
        log.scroll(-1, 3);
        check(&log, &["row 0", "row 1"], 0);
        told(&mut log, 2, 6);
        check(&log, &["row 3", "row 4", "row 5"], 0);
        log.scroll(-1, 3);
        check(&log, &["row 2", "row 3", "row 4"], 1);
        // What is looked at stays.
        told(&mut log, 6, 9);
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
        let mut log = Log::default();
        told(&mut log, 0, 3);
        log.scroll(-1, 1);
        told(&mut log, 3, 20_000);
        assert!(log.rows.len() <= KEPT && log.fresh.is_empty() && log.is_cut());
        // What was looked at is gone; the oldest that is left is shown instead.
        let seen: Vec<&str> = log.view(2).map(|row| row.text.trim()).collect();
        assert_eq!(seen, ["row 15000", "row 15001"]);
        log.follow();
        check(&log, &["row 19997", "row 19998", "row 19999"], 0);
    }
}
