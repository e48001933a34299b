//! Defines the page of this bench: its text, its columns and its chart, with the medians of the first and the further
//! commands.

use ralph_testkit::bench::{BarChart, BenchPage, BenchReport, ChartBar, SeriesColumn};

use crate::latency::{FIRST, FURTHER};
use crate::run::EMBEDDED;

pub(crate) const PAGE: BenchPage = BenchPage {
    name: "sandbox",
    title: "How fast the cage is",
    introduction: "all programs are measured in turn, in one run, so that noise affects all alike.",
    chart_label: "Median times on a logarithmic scale",
    chart,
};

pub(crate) const COLUMNS: &[SeriesColumn] = &[
    SeriesColumn::Percentile(50),
    SeriesColumn::Percentile(90),
    SeriesColumn::Samples,
    SeriesColumn::Ratio { base: EMBEDDED },
];

fn chart(report: &BenchReport) -> String {
    let shown = report.series.iter().filter(|series| [FIRST, FURTHER].contains(&series.group));
    let bars = shown.map(|series| ChartBar {
        group: series.group,
        name: &series.name,
        value: series.p50(),
        is_own: series.name.starts_with(EMBEDDED),
    });
    let label = "Median times in milliseconds, logarithmic";
    BarChart { label, scale: (1.0, 10.0), format_ms, bars: bars.collect() }.svg()
}

fn format_ms(ms: f64) -> String {
    if ms >= 1000.0 {
        format!("{:.1} s", ms / 1000.0)
    } else if ms >= 10.0 {
        format!("{ms:.0} ms")
    } else {
        format!("{ms:.1} ms")
    }
}
