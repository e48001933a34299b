//! Defines the columns of the tables of series.

use super::number::format_number;
use super::report::BenchReport;
use super::series::SampleSeries;

/// A column of a table of series.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeriesColumn {
    Percentile(usize),
    /// The delay that is added to the series `base` of the same group; only for times.
    Added {
        percent: usize,
        base: &'static str,
    },
    /// The median as a multiple of that of the series `base` of the same group.
    Ratio {
        base: &'static str,
    },
    /// The number of samples.
    Samples,
}

impl SeriesColumn {
    pub(super) fn title(self, unit: &str) -> String {
        match self {
            Self::Percentile(percent) => format!("p{percent} {unit}"),
            Self::Added { percent, .. } => format!("adds p{percent}"),
            Self::Ratio { base } => format!("× {base}"),
            Self::Samples => "samples".to_owned(),
        }
    }

    fn cell(self, report: &BenchReport, series: &SampleSeries) -> String {
        let value = match self {
            Self::Percentile(percent) => series.percentile(percent),
            Self::Added { percent, base } => report.added_delay(series, base, percent),
            Self::Ratio { base } => {
                let base = report.find_series(series.group, base).and_then(SampleSeries::p50);
                series.p50().zip(base).map(|(own, base)| own / base)
            }
            Self::Samples => return series.values.len().to_string(),
        };
        value.map_or_else(String::new, format_number)
    }
}

/// Returns the cells of a series, or why it has none.
pub(super) fn cells(report: &BenchReport, series: &SampleSeries) -> Result<Vec<String>, String> {
    if series.values.is_empty() {
        return Err(format!("NOT MEASURED: {}", series.missing_reason()));
    }
    Ok(report.columns.iter().map(|column| column.cell(report, series)).collect())
}
