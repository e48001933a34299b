//! Draws the medians of the first and the further commands as a chart.

use ralph_testkit::bench::{BarChart, ChartBar};

use crate::latency::{FIRST, FURTHER};
use crate::report::SandboxBenchReport;
use crate::run::EMBEDDED;

pub(crate) fn svg(table: &SandboxBenchReport) -> String {
    let shown = table.series.iter().filter(|series| [FIRST, FURTHER].contains(&series.group));
    let bars = shown.map(|series| ChartBar {
        group: series.group,
        name: &series.name,
        value: series.p50(),
        is_own: series.name.starts_with(EMBEDDED),
    });
    let label = "Median times in milliseconds, logarithmic";
    BarChart { label, missing: "not available", scale: (1.0, 10.0), format_ms, bars: bars.collect() }.svg()
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
