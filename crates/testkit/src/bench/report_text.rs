//! Prints a report for a terminal.

use super::column;
use super::figure::BenchFigure;
use super::number::format_number;
use super::report::BenchReport;
use super::series::SampleSeries;

/// The width of the names of series and figures.
const NAME_WIDTH: usize = 66;

impl BenchReport {
    /// Returns the report as text for a terminal.
    pub fn text(&self) -> String {
        let mut lines = vec![self.machine.text()];
        lines.extend(self.peers.iter().map(|peer| format!("{}: {}", peer.name, peer.version)));
        for group in self.series.chunk_by(|a, b| a.group == b.group) {
            lines.push(String::new());
            lines.extend(group.first().map(|series| self.series_head(series)));
            lines.extend(group.iter().map(|series| self.series_line(series)));
        }
        for section in self.figures.all().chunk_by(|a, b| a.section == b.section) {
            lines.push(String::new());
            lines.extend(section.first().map(|figure| figure.section.to_owned()));
            lines.extend(section.iter().map(figure_line));
        }
        lines.push(String::new());
        lines.push(match (self.passed(), self.figures.unmeasured()) {
            (false, _) => "a target was missed".to_owned(),
            (true, 0) => "all targets met".to_owned(),
            (true, count) => format!("no target was missed, {count} not measured"),
        });
        lines.iter().flat_map(|line| [line.trim_end(), "\n"]).collect()
    }

    fn series_head(&self, series: &SampleSeries) -> String {
        let titles = self.columns.iter().map(|column| column.title(series.unit));
        format!("{:<width$}{}", series.group, join_cells(titles), width = NAME_WIDTH + 2)
    }

    fn series_line(&self, series: &SampleSeries) -> String {
        let cells = column::cells(self, series).map_or_else(|why| format!(" {why}"), join_cells);
        format!("  {:<NAME_WIDTH$}{cells}", series.name)
    }
}

fn join_cells(cells: impl IntoIterator<Item = String>) -> String {
    cells.into_iter().map(|cell| format!(" {cell:>10}")).collect::<Vec<_>>().concat()
}

fn figure_line(figure: &BenchFigure) -> String {
    let BenchFigure { name, unit, value, .. } = figure;
    let (value, why) = match value {
        Ok(value) => (format_number(*value), String::new()),
        Err(why) => (String::new(), format!(": {why}")),
    };
    let (target, verdict) = (figure.target_text(), figure.verdict());
    format!("  {name:<NAME_WIDTH$} {value:>10} {unit:<5} {target:<14} {verdict}{why}")
}
