//! Holds everything that a bench measured, and derives figures that compare series.

use serde::Serialize;

use super::column::SeriesColumn;
use super::figure::FigureTarget;
use super::figure_table::FigureTable;
use super::machine::{BenchMachine, describe_machine};
use super::series::SampleSeries;

/// Another program that is measured too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BenchPeer {
    pub name: String,
    /// Its version, or why it could not be measured.
    pub version: String,
}

/// Everything that a bench measured.
#[derive(Debug)]
pub struct BenchReport {
    /// The command that repeats the bench, without directories, which are specific to one machine.
    pub command: String,
    pub machine: BenchMachine,
    pub peers: Vec<BenchPeer>,
    /// The columns of the tables of series.
    pub columns: &'static [SeriesColumn],
    /// The series; those of a group are consecutive.
    pub series: Vec<SampleSeries>,
    pub figures: FigureTable,
}

impl BenchReport {
    /// Returns an empty report of a bench that begins now on this machine.
    pub fn new(command: impl Into<String>, columns: &'static [SeriesColumn]) -> Self {
        Self {
            command: command.into(),
            machine: describe_machine(),
            peers: Vec::new(),
            columns,
            series: Vec::new(),
            figures: FigureTable::default(),
        }
    }

    pub fn find_series(&self, group: &str, name: &str) -> Option<&SampleSeries> {
        self.series.iter().find(|series| series.group == group && series.name == name)
    }

    /// Adds the ratio of the medians of two series.
    pub fn add_ratio(&mut self, group: &str, name: &str, other: &str, target: FigureTarget) {
        let value = self.medians(group, name, other).map(|(own, other)| own / other);
        self.figures.add_result(format!("{group}: {name} / {other}"), value, target, "×");
    }

    /// Adds the delay in ms that a series adds to the series `base`, by their medians; it must not be above its target.
    pub fn add_delay(&mut self, group: &str, name: &str, base: &str, most: f64) {
        let value = self.medians(group, name, base).map(|(own, base)| own - base);
        self.figures.add_result(format!("{group}: {name} adds, p50"), value, FigureTarget::AtMost(most), "ms");
    }

    /// Returns the delay that a series adds to the series `base` of its group; `None` for `base` itself, and for what
    /// is not a time.
    pub fn added_delay(&self, series: &SampleSeries, base: &str, percent: usize) -> Option<f64> {
        if series.name == base || series.unit != "ms" {
            return None;
        }
        let base = self.find_series(series.group, base)?;
        Some(series.percentile(percent)? - base.percentile(percent)?)
    }

    fn medians(&self, group: &str, left: &str, right: &str) -> Result<(f64, f64), String> {
        let median = |name: &str| {
            let series = self.find_series(group, name).ok_or_else(|| format!("`{name}` was not measured"))?;
            series.p50().ok_or_else(|| format!("`{name}`: {}", series.missing_reason()))
        };
        Ok((median(left)?, median(right)?))
    }

    /// Returns whether no target was missed.
    pub fn passed(&self) -> bool {
        self.figures.passed()
    }
}
