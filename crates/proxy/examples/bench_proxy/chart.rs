//! Draws the delays that proxies add as a chart.

use ralph_testkit::bench::{BarChart, ChartBar};

use crate::ralph_proxy_process::NAME;
use crate::report::ProxyBenchReport;
use crate::samples::DIRECT;

/// Less than this is noise, and cannot be drawn on a logarithmic scale.
const LEAST_MS: f64 = 0.01;

pub(crate) fn svg(table: &ProxyBenchReport) -> String {
    let shown = table.series.iter().filter(|series| series.unit == "ms" && series.name != DIRECT);
    let bars = shown.map(|series| ChartBar {
        group: series.group,
        name: &series.name,
        value: table.added(series).map(|(p50, _)| p50.max(LEAST_MS)),
        is_own: series.name == NAME,
    });
    let label = "Median delays that proxies add, in milliseconds, logarithmic";
    BarChart { label, missing: "not measured", scale: (0.1, 1.0), format_ms, bars: bars.collect() }.svg()
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
