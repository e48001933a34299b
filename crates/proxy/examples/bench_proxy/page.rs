//! Defines the page of this bench: its text, its columns and its chart, with the delays that proxies add.

use ralph_testkit::bench::{BarChart, BenchPage, BenchReport, ChartBar, SeriesColumn};

use crate::ralph_proxy_process::NAME;
use crate::setup::DIRECT;

pub(crate) const PAGE: BenchPage = BenchPage {
    name: "proxy",
    title: "Speed of the egress proxy",
    introduction: "all proxies are called in turn, in one run, by the same client, for the same upstream over TLS, so \
        that noise affects all alike. Every proxy is a process of its own, with as many threads or processes as it \
        takes by default; nothing is pinned to a processor.",
    chart_label: "Median delays that proxies add, on a logarithmic scale",
    chart,
};

pub(crate) const COLUMNS: &[SeriesColumn] = &[
    SeriesColumn::Percentile(50),
    SeriesColumn::Percentile(99),
    SeriesColumn::Added { percent: 50, base: DIRECT },
    SeriesColumn::Added { percent: 99, base: DIRECT },
    SeriesColumn::Samples,
];

/// Less than this is noise, and cannot be drawn on a logarithmic scale.
const LEAST_MS: f64 = 0.01;

fn chart(report: &BenchReport) -> String {
    let shown = report.series.iter().filter(|series| series.unit == "ms" && series.name != DIRECT);
    let bars = shown.map(|series| ChartBar {
        group: series.group,
        name: &series.name,
        value: report.added_delay(series, DIRECT, 50).map(|ms| ms.max(LEAST_MS)),
        is_own: series.name == NAME,
    });
    let label = "Median delays that proxies add, in milliseconds, logarithmic";
    BarChart { label, scale: (0.1, 1.0), format_ms, bars: bars.collect() }.svg()
}

fn format_ms(ms: f64) -> String {
    if ms >= 10.0 {
        format!("{ms:.0} ms")
    } else if ms >= 1.0 {
        format!("{ms:.1} ms")
    } else {
        format!("{ms:.2} ms")
    }
}
