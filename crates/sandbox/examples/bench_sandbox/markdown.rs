//! Renders the result as a page: what was measured, on which machine, and how it compares with the targets.

use std::fmt::Write as _;

use crate::report::{SandboxBenchReport, format_number};
use crate::run::EMBEDDED;
use crate::series::find;

pub(crate) fn render(table: &SandboxBenchReport) -> String {
    let mut out = String::from(
        "# How fast the cage is\n\nWritten by `cargo xtask bench sandbox --write docs/bench`: all programs are measured \
         in turn, in one run, so that noise affects all alike.\n\n![Median times on a logarithmic scale](sandbox.svg)\n\n",
    );
    let mut put = |line: &str| writeln!(out, "{line}").expect("writing to a String cannot fail");
    put(&format!("- machine: {}", table.machine.text()));
    put(&format!("- command: `{}`", table.command));
    for peer in &table.peers {
        put(&format!("- {}: {}", peer.name, peer.version));
    }
    put("\n## Figures and their targets\n\n| figure | value | target | |\n|---|--:|--:|---|");
    for figure in &table.figures {
        let unit = figure.unit;
        let value = figure.value.map_or_else(
            || figure.missing.clone().unwrap_or_default(),
            |value| format!("{} {unit}", format_number(value)).trim_end().to_owned(),
        );
        let target = figure.target.map_or_else(String::new, |target| format!("≤ {} {unit}", format_number(target)));
        put(&format!("| {} | {value} | {} | {} |", figure.name, target.trim_end(), figure.verdict()));
    }
    let mut group = "";
    for series in &table.series {
        if series.group != group {
            group = series.group;
            put(&format!("\n## {group}\n\n| | p50 ms | p90 ms | samples | × embedded |\n|---|--:|--:|--:|--:|"));
        }
        let ours = find(&table.series, group, EMBEDDED).and_then(crate::series::SandboxBenchSeries::p50);
        let line = match (series.p50(), series.p90()) {
            (Some(p50), Some(p90)) => {
                let ratio = ours.map_or_else(String::new, |ours| format_number(p50 / ours));
                format!("| {} | {p50:.2} | {p90:.2} | {} | {ratio} |", series.name, series.times.len())
            }
            _ => {
                let why = series.missing.as_deref().unwrap_or("no samples");
                format!("| {} | not available: {why} | | | |", series.name)
            }
        };
        put(&line);
    }
    out
}
