//! Folds events into one row for each iteration.

use jiff::Timestamp;
use ralph_core::event::{Event, EventLine, IterationOutcome};
use ralph_core::money::MicroUsd;

/// The most iterations that are kept.
const MAX_ROWS: usize = 2000;

/// One iteration as a row.
#[derive(Debug, Clone, PartialEq)]
pub struct IterationRow {
    pub n: u32,
    pub profile: String,
    pub began: Timestamp,
    /// How it ended and when; `None` while it is under way.
    pub ended: Option<(IterationOutcome, Timestamp)>,
    pub cost: MicroUsd,
    pub score: Option<f64>,
    /// Boxes that were verified in it for the first time.
    pub boxes: u32,
}

/// All rows, oldest first.
#[derive(Debug, Default)]
pub struct IterationTable(Vec<IterationRow>);

impl IterationTable {
    pub fn fold(&mut self, line: &EventLine) {
        match &line.event {
            Event::IterationStarted { n, profile, .. } => self.begin(*n, profile, line.at),
            Event::ModelCalled { n, cost, .. } => self.update_row(*n, |row| row.cost += *cost),
            Event::IterationFinished { n, outcome, sample, .. } => self.update_row(*n, |row| {
                row.ended = Some((*outcome, line.at));
                row.boxes = sample.newly_verified;
            }),
            Event::GutterScored { n, score } => self.update_row(*n, |row| row.score = Some(score.total)),
            _ => (),
        }
    }

    fn begin(&mut self, n: u32, profile: &str, at: Timestamp) {
        // An iteration that begins again keeps the cost it already has.
        let cost = self.0.iter().rev().find(|row| row.n == n).map_or(MicroUsd::ZERO, |row| row.cost);
        while self.0.last().is_some_and(|row| row.n >= n) {
            self.0.pop();
        }
        if self.0.len() == MAX_ROWS {
            self.0.remove(0);
        }
        self.0.push(IterationRow {
            n,
            profile: profile.to_owned(),
            began: at,
            ended: None,
            cost,
            score: None,
            boxes: 0,
        });
    }

    fn update_row(&mut self, n: u32, change: impl FnOnce(&mut IterationRow)) {
        if let Some(row) = self.0.iter_mut().rev().find(|row| row.n == n) {
            change(row);
        }
    }

    pub fn all(&self) -> &[IterationRow] {
        &self.0
    }

    /// Returns the iterations that began with another profile than the one before.
    pub fn profile_changes(&self) -> Vec<u32> {
        self.0.windows(2).filter(|two| two[0].profile != two[1].profile).map(|two| two[1].n).collect()
    }
}
