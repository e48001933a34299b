//! Compares figures with their targets, and prints everything for a terminal and as JSON.

use std::fmt::Write as _;

use ralph_testkit::bench::BenchMachine;
use serde::Serialize;

use crate::samples::{DIRECT, SampleSeries, find};

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum FigureTarget {
    AtMost(f64),
    AtLeast(f64),
}

impl FigureTarget {
    fn holds(self, value: f64) -> bool {
        match self {
            Self::AtMost(most) => value <= most,
            Self::AtLeast(least) => value >= least,
        }
    }

    pub(crate) fn shown(self, unit: &str) -> String {
        let text = match self {
            Self::AtMost(most) => format!("≤ {} {unit}", number(most)),
            Self::AtLeast(least) => format!("≥ {} {unit}", number(least)),
        };
        text.trim_end().to_owned()
    }
}

#[derive(Debug, Clone, Serialize)]
pub(crate) struct ProxyBenchFigure {
    pub(crate) name: String,
    pub(crate) unit: &'static str,
    pub(crate) target: FigureTarget,
    /// The value, or why there is none.
    pub(crate) value: Result<f64, String>,
}

impl ProxyBenchFigure {
    pub(crate) fn pass(&self) -> Option<bool> {
        self.value.as_ref().ok().map(|value| self.target.holds(*value))
    }

    pub(crate) fn verdict(&self) -> &'static str {
        match self.pass() {
            Some(true) => "PASS",
            Some(false) => "FAIL",
            None => "NOT MEASURED",
        }
    }

    pub(crate) fn shown(&self) -> String {
        match &self.value {
            Ok(value) => format!("{} {}", number(*value), self.unit).trim_end().to_owned(),
            Err(why) => why.clone(),
        }
    }
}

/// A proxy that was measured.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct MeasuredPeer {
    pub(crate) name: &'static str,
    pub(crate) version: String,
}

/// Everything that was measured.
#[derive(Debug, Serialize)]
pub(crate) struct ProxyBenchReport {
    pub(crate) format: u32,
    pub(crate) command: String,
    pub(crate) machine: BenchMachine,
    pub(crate) peers: Vec<MeasuredPeer>,
    pub(crate) series: Vec<SampleSeries>,
    pub(crate) figures: Vec<ProxyBenchFigure>,
}

impl ProxyBenchReport {
    /// Checks the delay that a setup adds to the direct one, by their medians, against its target.
    pub(crate) fn check_added_delay(&mut self, group: &'static str, who: &str, most: f64) {
        let value = self.medians(group, who, DIRECT).map(|(ours, direct)| ours - direct);
        let name = format!("{group}: {who} adds, p50");
        self.figures.push(ProxyBenchFigure { name, unit: "ms", target: FigureTarget::AtMost(most), value });
    }

    /// Checks the ratio of a setup's figure to another's against its target.
    pub(crate) fn check_ratio(&mut self, group: &'static str, who: &str, other: &str, least: f64) {
        let value = self.medians(group, who, other).map(|(ours, other)| ours / other);
        let name = format!("{group}: {who} / {other}");
        self.figures.push(ProxyBenchFigure { name, unit: "×", target: FigureTarget::AtLeast(least), value });
    }

    fn medians(&self, group: &str, left: &str, right: &str) -> Result<(f64, f64), String> {
        let median = |name: &str| {
            let series = find(&self.series, group, name).ok_or_else(|| format!("`{name}` was not measured"))?;
            let why = || series.missing.clone().unwrap_or_else(|| "there are no samples".to_owned());
            series.p50().ok_or_else(|| format!("`{name}`: {}", why()))
        };
        Ok((median(left)?, median(right)?))
    }

    /// Returns what a series adds to the direct one of its group, if there is a direct one.
    pub(crate) fn added(&self, series: &SampleSeries) -> Option<(f64, f64)> {
        let direct = find(&self.series, series.group, DIRECT)?;
        if series.name == DIRECT || series.unit != "ms" {
            return None;
        }
        Some((series.p50()? - direct.p50()?, series.p99()? - direct.p99()?))
    }

    pub(crate) fn unmeasured(&self) -> usize {
        self.figures.iter().filter(|figure| figure.pass().is_none()).count()
    }

    pub(crate) fn passed(&self) -> bool {
        self.figures.iter().all(|figure| figure.pass() != Some(false))
    }

    pub(crate) fn json(&self) -> String {
        let mut whole = serde_json::to_value(self).unwrap_or_default();
        if let Some(object) = whole.as_object_mut() {
            object.insert("pass".to_owned(), self.passed().into());
            object.insert("unmeasured".to_owned(), self.unmeasured().into());
        }
        format!("{whole}\n")
    }

    pub(crate) fn text(&self) -> String {
        let mut out = format!("{}\n", self.machine.text());
        for peer in &self.peers {
            push_line(&mut out, &format!("{}: {}", peer.name, peer.version));
        }
        let mut group = "";
        for series in &self.series {
            if series.group != group {
                group = series.group;
                let head = ["p50", "p99", "adds p50", "adds p99", "n"].map(|word| format!("{word:>10}")).join(" ");
                push_line(&mut out, &format!("\n{:<66} {head}", format!("{group} ({})", series.unit)));
            }
            let line = match (series.p50(), series.p99()) {
                (Some(p50), Some(p99)) => {
                    let (mid, far) = self
                        .added(series)
                        .map_or((String::new(), String::new()), |(mid, far)| (number(mid), number(far)));
                    let (p50, p99) = (number(p50), number(p99));
                    format!("  {:<64} {p50:>10} {p99:>10} {mid:>10} {far:>10} {:>10}", series.name, series.values.len())
                }
                _ => format!(
                    "  {:<64} NOT MEASURED: {}",
                    series.name,
                    series.missing.as_deref().unwrap_or("there are no samples")
                ),
            };
            push_line(&mut out, &line);
        }
        push_line(&mut out, "\nfigures");
        for figure in &self.figures {
            let ProxyBenchFigure { name, target, unit, .. } = figure;
            let (target, shown) = (target.shown(unit), figure.shown());
            push_line(&mut out, &format!("  {name:<70} {:<14} {target:<12} {shown}", figure.verdict()));
        }
        let end = match (self.passed(), self.unmeasured()) {
            (false, _) => "\na target was missed".to_owned(),
            (true, 0) => "\nall targets met".to_owned(),
            (true, count) => format!("\nno target was missed, {count} not measured"),
        };
        push_line(&mut out, &end);
        out
    }
}

/// Formats small numbers with more digits than large ones.
pub(crate) fn number(value: f64) -> String {
    match value.abs() {
        small if small < 1.0 => format!("{value:.3}"),
        some if some < 1000.0 => format!("{value:.2}"),
        _ => format!("{value:.0}"),
    }
}

fn push_line(out: &mut String, line: &str) {
    writeln!(out, "{}", line.trim_end()).expect("writing to a String cannot fail");
}
