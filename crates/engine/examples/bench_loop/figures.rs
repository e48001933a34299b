//! Collects figures with their targets and prints them.

use std::fmt::Write as _;

use serde::Serialize;

#[derive(Debug, Serialize)]
struct BenchFigure {
    section: &'static str,
    name: String,
    value: f64,
    unit: &'static str,
    /// The most it may be; `None` if it is informational.
    target: Option<f64>,
    pass: Option<bool>,
}

/// All figures of one bench.
#[derive(Debug, Default)]
pub(crate) struct FigureTable {
    section: &'static str,
    figures: Vec<BenchFigure>,
}

impl FigureTable {
    pub(crate) fn section(&mut self, name: &'static str) {
        self.section = name;
    }

    /// Adds a figure without a target.
    pub(crate) fn add(&mut self, name: impl Into<String>, value: f64, unit: &'static str) {
        self.figures.push(BenchFigure {
            section: self.section,
            name: name.into(),
            value,
            unit,
            target: None,
            pass: None,
        });
    }

    /// Adds a figure that must not exceed its target.
    pub(crate) fn add_with_target(&mut self, name: impl Into<String>, value: f64, target: f64, unit: &'static str) {
        let pass = Some(value <= target);
        self.figures.push(BenchFigure {
            section: self.section,
            name: name.into(),
            value,
            unit,
            target: Some(target),
            pass,
        });
    }

    pub(crate) fn passed(&self) -> bool {
        self.figures.iter().all(|figure| figure.pass != Some(false))
    }

    pub(crate) fn json(&self) -> String {
        let whole = serde_json::json!({ "format": 1, "pass": self.passed(), "figures": self.figures });
        format!("{whole}\n")
    }

    pub(crate) fn text(&self) -> String {
        let mut out = String::new();
        let mut section = "";
        for figure in &self.figures {
            if figure.section != section {
                section = figure.section;
                writeln!(out, "\n{section}").expect("writing to a String cannot fail");
            }
            let target = figure.target.map_or_else(String::new, |target| format!("<= {target} {}", figure.unit));
            let verdict = match figure.pass {
                Some(true) => "PASS",
                Some(false) => "FAIL",
                None => "",
            };
            let line = format!(
                "  {:<52} {:>12} {:<5} {target:<14} {verdict}",
                figure.name,
                format!("{:.2}", figure.value),
                figure.unit
            );
            writeln!(out, "{}", line.trim_end()).expect("writing to a String cannot fail");
        }
        let verdict = if self.passed() { "all targets met" } else { "a target was missed" };
        writeln!(out, "\n{verdict}").expect("writing to a String cannot fail");
        out
    }
}

/// Returns the value below which `percent` of the values lie; 0 for none.
pub(crate) fn percentile(values: &[f64], percent: usize) -> f64 {
    ralph_testkit::bench::percentile(values, percent).unwrap_or(0.0)
}
