//! Writes the result as a Markdown page: what was measured, on what, and how it compares to its targets.

use std::fmt::Write as _;

use crate::report::{ProxyBenchReport, number};

const HEAD: &str = "# Speed of the egress proxy\n\nWritten by `cargo xtask bench proxy --write docs/bench`: all \
    proxies are called in turn, in one run, by the same client, for the same upstream over TLS, so that noise affects all \
    alike. Every proxy is a process of its own, with as many threads or processes as it takes by default; nothing is \
    pinned to a processor.\n\n![Median delays that proxies add, on a logarithmic scale](proxy.svg)\n\n";

pub(crate) fn markdown(table: &ProxyBenchReport) -> String {
    let mut out = String::from(HEAD);
    let mut put = |line: &str| writeln!(out, "{line}").expect("writing to a String cannot fail");
    put(&format!("- machine: {}", table.machine.text()));
    put(&format!("- command: `{}`", table.command));
    for peer in &table.peers {
        put(&format!("- {}: {}", peer.name, peer.version));
    }
    put("\n## Figures and their targets\n\n| figure | value | target | |\n|---|--:|--:|---|");
    for figure in &table.figures {
        let (value, target) = (figure.shown(), figure.target.shown(figure.unit));
        put(&format!("| {} | {value} | {target} | {} |", figure.name, figure.verdict()));
    }
    let mut group = "";
    for series in &table.series {
        if series.group != group {
            group = series.group;
            let unit = series.unit;
            put(&format!(
                "\n## {group}\n\n| | p50 {unit} | p99 {unit} | adds p50 | adds p99 | samples |\n|---|--:|--:|--:|--:|--:|"
            ));
        }
        let line = match (series.p50(), series.p99()) {
            (Some(p50), Some(p99)) => {
                let added = table.added(series);
                let (mid, far) = added.map_or((String::new(), String::new()), |(mid, far)| (number(mid), number(far)));
                let (p50, p99) = (number(p50), number(p99));
                format!("| {} | {p50} | {p99} | {mid} | {far} | {} |", series.name, series.values.len())
            }
            _ => {
                let why = series.missing.as_deref().unwrap_or("there are no samples");
                format!("| {} | NOT MEASURED: {why} | | | | |", series.name)
            }
        };
        put(&line);
    }
    out
}
