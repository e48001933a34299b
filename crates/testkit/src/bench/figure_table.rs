//! Collects the figures of a bench in sections.

use super::figure::{BenchFigure, FigureTarget};

/// All figures of a bench, in the order in which they are shown.
#[derive(Debug, Clone, PartialEq)]
pub struct FigureTable {
    section: &'static str,
    figures: Vec<BenchFigure>,
}

impl Default for FigureTable {
    fn default() -> Self {
        Self { section: "figures", figures: Vec::new() }
    }
}

impl FigureTable {
    /// Begins a section: the figures that are added next belong to it.
    pub fn section(&mut self, name: &'static str) {
        self.section = name;
    }

    /// Adds a figure without a target.
    pub fn add(&mut self, name: impl Into<String>, value: f64, unit: &'static str) {
        self.push(name.into(), unit, None, Ok(value));
    }

    /// Adds a figure that must not be above its target.
    pub fn add_with_target(&mut self, name: impl Into<String>, value: f64, most: f64, unit: &'static str) {
        self.push(name.into(), unit, Some(FigureTarget::AtMost(most)), Ok(value));
    }

    /// Adds a figure with a target, or the reason why it could not be measured.
    pub fn add_result(
        &mut self,
        name: impl Into<String>,
        value: Result<f64, String>,
        target: FigureTarget,
        unit: &'static str,
    ) {
        self.push(name.into(), unit, Some(target), value);
    }

    fn push(&mut self, name: String, unit: &'static str, target: Option<FigureTarget>, value: Result<f64, String>) {
        self.figures.push(BenchFigure { section: self.section, name, unit, target, value });
    }

    pub fn all(&self) -> &[BenchFigure] {
        &self.figures
    }

    /// Returns whether no target was missed. A figure that could not be measured misses none.
    pub fn passed(&self) -> bool {
        self.figures.iter().all(|figure| figure.pass() != Some(false))
    }

    /// Returns how many figures could not be measured.
    pub fn unmeasured(&self) -> usize {
        self.figures.iter().filter(|figure| !figure.is_measured()).count()
    }
}
