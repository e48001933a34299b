//! Writes a report as a Markdown page with a chart.

use std::fs;
use std::io;
use std::path::Path;

use super::column;
use super::figure::BenchFigure;
use super::number::format_number;
use super::report::BenchReport;
use super::series::SampleSeries;

/// The page of a bench, apart from the figures.
#[derive(Debug)]
pub struct BenchPage {
    /// The name of the bench for `cargo xtask bench`, and of the files.
    pub name: &'static str,
    pub title: &'static str,
    /// How it is measured.
    pub introduction: &'static str,
    /// What the chart shows.
    pub chart_label: &'static str,
    /// Draws the chart as SVG.
    pub chart: fn(&BenchReport) -> String,
}

impl BenchPage {
    /// Writes the page and its chart into a directory.
    pub fn write(&self, report: &BenchReport, dir: &Path) -> io::Result<()> {
        fs::create_dir_all(dir)?;
        fs::write(dir.join(self.name).with_extension("md"), self.markdown(report))?;
        fs::write(dir.join(self.name).with_extension("svg"), (self.chart)(report))
    }

    /// Returns the page: what was measured, on which machine, and how it compares with the targets.
    pub fn markdown(&self, report: &BenchReport) -> String {
        let Self { name, title, introduction, chart_label, .. } = self;
        let mut lines = vec![
            format!("# {title}\n"),
            format!("Written by `cargo xtask bench {name} --write docs/bench`: {introduction}\n"),
            format!("![{chart_label}]({name}.svg)\n"),
            format!("- machine: {}", report.machine.text()),
            format!("- command: `{}`", report.command),
        ];
        lines.extend(report.peers.iter().map(|peer| format!("- {}: {}", peer.name, peer.version)));
        lines.push("\n## Figures and their targets\n\n| figure | value | target | |\n|---|--:|--:|---|".to_owned());
        lines.extend(report.figures.all().iter().map(figure_row));
        for group in report.series.chunk_by(|a, b| a.group == b.group) {
            lines.extend(group.first().map(|series| table_head(report, series)));
            lines.extend(group.iter().map(|series| series_row(report, series)));
        }
        lines.join("\n") + "\n"
    }
}

fn figure_row(figure: &BenchFigure) -> String {
    let value = match &figure.value {
        Ok(value) => format!("{} {}", format_number(*value), figure.unit),
        Err(why) => why.clone(),
    };
    format!("| {} | {} | {} | {} |", figure.name, value.trim_end(), figure.target_text(), figure.verdict())
}

fn table_head(report: &BenchReport, series: &SampleSeries) -> String {
    let titles: Vec<String> = report.columns.iter().map(|column| column.title(series.unit)).collect();
    format!("\n## {}\n\n| | {} |\n|---|{}", series.group, titles.join(" | "), "--:|".repeat(titles.len()))
}

fn series_row(report: &BenchReport, series: &SampleSeries) -> String {
    match column::cells(report, series) {
        Ok(cells) => format!("| {} | {} |", series.name, cells.join(" | ")),
        // The reason takes the first cell, and the others are empty.
        Err(why) => format!("| {} | {why} |{}", series.name, " |".repeat(report.columns.len().saturating_sub(1))),
    }
}
