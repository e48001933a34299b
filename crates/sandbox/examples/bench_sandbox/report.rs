//! Collects figures with their targets, and prints everything as text and as JSON.

use std::fmt::Write as _;

use ralph_testkit::bench::BenchMachine;
use serde::Serialize;

use crate::peers::SandboxBenchPeer;
use crate::series::{SandboxBenchSeries, find};

#[derive(Debug, Clone, Serialize)]
pub(crate) struct SandboxBenchFigure {
    pub(crate) name: String,
    pub(crate) value: Option<f64>,
    pub(crate) unit: &'static str,
    /// The highest value that passes; `None` where it is only reported.
    pub(crate) target: Option<f64>,
    pub(crate) pass: Option<bool>,
    /// Why there is no value.
    pub(crate) missing: Option<String>,
}

/// Everything that was measured.
#[derive(Debug, Serialize)]
pub(crate) struct SandboxBenchReport {
    pub(crate) format: u32,
    pub(crate) command: String,
    pub(crate) machine: BenchMachine,
    pub(crate) peers: Vec<SandboxBenchPeer>,
    pub(crate) series: Vec<SandboxBenchSeries>,
    pub(crate) figures: Vec<SandboxBenchFigure>,
}

impl SandboxBenchReport {
    /// Adds a figure without a target.
    pub(crate) fn add_figure(&mut self, name: impl Into<String>, value: f64, unit: &'static str) {
        let figure =
            SandboxBenchFigure { name: name.into(), value: Some(value), unit, target: None, pass: None, missing: None };
        self.figures.push(figure);
    }

    /// Adds a figure that must not be above its target.
    pub(crate) fn add_with_target(&mut self, name: impl Into<String>, value: f64, target: f64, unit: &'static str) {
        let pass = Some(value <= target);
        let target = Some(target);
        self.figures.push(SandboxBenchFigure {
            name: name.into(),
            value: Some(value),
            unit,
            target,
            pass,
            missing: None,
        });
    }

    /// Adds a figure that could not be measured.
    pub(crate) fn add_missing(&mut self, name: impl Into<String>, target: Option<f64>, unit: &'static str, why: &str) {
        let missing = Some(format!("not available: {why}"));
        self.figures.push(SandboxBenchFigure { name: name.into(), value: None, unit, target, pass: None, missing });
    }

    /// Adds the ratio of the medians of two series.
    pub(crate) fn add_ratio(&mut self, group: &'static str, ours: &str, other: &str, most: f64) {
        let name = format!("{group}: {ours} / {other}");
        let (left, right) = (find(&self.series, group, ours), find(&self.series, group, other));
        let why = [left, right].into_iter().flatten().find_map(|series| series.missing.clone());
        match (left.and_then(SandboxBenchSeries::p50), right.and_then(SandboxBenchSeries::p50)) {
            (Some(left), Some(right)) => self.add_with_target(name, left / right, most, "×"),
            _ => self.add_missing(name, Some(most), "×", &why.unwrap_or_else(|| "there are no samples".to_owned())),
        }
    }

    pub(crate) fn passed(&self) -> bool {
        self.figures.iter().all(|figure| figure.pass != Some(false))
    }

    pub(crate) fn json(&self) -> String {
        let mut whole = serde_json::to_value(self).unwrap_or_default();
        if let Some(object) = whole.as_object_mut() {
            object.insert("pass".to_owned(), self.passed().into());
        }
        format!("{whole}\n")
    }

    pub(crate) fn text(&self) -> String {
        let mut out = format!("{}\n", self.machine.text());
        let mut group = "";
        for series in &self.series {
            if series.group != group {
                group = series.group;
                push_line(&mut out, &format!("\n{group:<54} {:>10} {:>10} {:>5}", "p50 ms", "p90 ms", "n"));
            }
            let line = match (series.p50(), series.p90(), &series.missing) {
                (Some(p50), Some(p90), _) => {
                    format!("  {:<52} {p50:>10.2} {p90:>10.2} {:>5}", series.name, series.times.len())
                }
                (_, _, why) => {
                    format!("  {:<52} not available: {}", series.name, why.as_deref().unwrap_or("no samples"))
                }
            };
            push_line(&mut out, &line);
        }
        push_line(&mut out, "\nfigures");
        for figure in &self.figures {
            push_line(&mut out, &format!("  {:<52} {}", figure.name, figure.format_line()));
        }
        let unmeasured = self.figures.iter().filter(|figure| figure.target.is_some() && figure.pass.is_none()).count();
        push_line(
            &mut out,
            &match (self.passed(), unmeasured) {
                (false, _) => "\na target was missed".to_owned(),
                (true, 0) => "\nall targets met".to_owned(),
                (true, count) => format!("\nno target was missed, {count} not measured"),
            },
        );
        out
    }
}

impl SandboxBenchFigure {
    pub(crate) fn verdict(&self) -> &'static str {
        match (self.pass, self.target) {
            (Some(true), _) => "PASS",
            (Some(false), _) => "FAIL",
            (None, Some(_)) => "NOT MEASURED",
            (None, None) => "",
        }
    }

    fn format_line(&self) -> String {
        let Self { value, unit, target, missing, .. } = self;
        let value = match (value, missing) {
            (Some(value), _) => format!("{:>10} {unit:<5}", format_number(*value)),
            (None, why) => why.clone().unwrap_or_default(),
        };
        let target = target.map_or_else(String::new, |target| format!("<= {} {unit}", format_number(target)));
        format!("{value} {target:<14} {}", self.verdict())
    }
}

/// Formats small numbers with more digits than large ones.
pub(crate) fn format_number(value: f64) -> String {
    if value.abs() < 1.0 { format!("{value:.3}") } else { format!("{value:.2}") }
}

fn push_line(out: &mut String, line: &str) {
    writeln!(out, "{}", line.trim_end()).expect("writing to a String cannot fail");
}
