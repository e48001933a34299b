//! Provides the table of figures to the parts of this bench, with percentiles that are numbers.

pub(crate) use ralph_testkit::bench::FigureTable;

/// Returns the value below which `percent` of the values lie; 0 for none.
pub(crate) fn percentile(values: &[f64], percent: usize) -> f64 {
    ralph_testkit::bench::percentile(values, percent).unwrap_or(0.0)
}
