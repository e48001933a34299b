//! Writes a report as one JSON object.

use serde_json::{Value, json};

use super::figure::BenchFigure;
use super::report::BenchReport;

/// The version of the format, for those who keep results and compare them later.
const FORMAT: u32 = 2;

impl BenchReport {
    /// Returns the report as one line of JSON.
    pub fn json(&self) -> String {
        let whole = json!({
            "format": FORMAT,
            "command": self.command,
            "machine": self.machine,
            "peers": self.peers,
            "series": self.series,
            "figures": self.figures.all().iter().map(figure_json).collect::<Vec<_>>(),
            "pass": self.passed(),
            "unmeasured": self.figures.unmeasured(),
        });
        format!("{whole}\n")
    }
}

fn figure_json(figure: &BenchFigure) -> Value {
    json!({
        "section": figure.section,
        "name": figure.name,
        "value": figure.value.as_ref().ok(),
        "unit": figure.unit,
        "target": figure.target,
        "pass": figure.pass(),
        "missing": figure.value.as_ref().err(),
    })
}
