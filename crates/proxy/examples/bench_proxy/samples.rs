//! Samples of one thing, and what is told of them.

use serde::Serialize;

/// The one that goes without any proxy; the others are held against it.
pub(crate) const DIRECT: &str = "direct";

/// What one way gave, or why it could not be tried.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct SampleSeries {
    pub(crate) group: &'static str,
    pub(crate) name: String,
    pub(crate) unit: &'static str,
    pub(crate) values: Vec<f64>,
    pub(crate) missing: Option<String>,
}

impl SampleSeries {
    pub(crate) fn new(group: &'static str, name: impl Into<String>, unit: &'static str) -> Self {
        Self { group, name: name.into(), unit, values: Vec::new(), missing: None }
    }

    pub(crate) fn p50(&self) -> Option<f64> {
        percentile(&self.values, 50)
    }

    pub(crate) fn p99(&self) -> Option<f64> {
        percentile(&self.values, 99)
    }
}

/// Returns the value below which `percent` of the values lie.
pub(crate) fn percentile(values: &[f64], percent: usize) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = (sorted.len().saturating_sub(1) * percent).div_ceil(100);
    sorted.get(at).copied()
}

/// Finds a series by what it is.
pub(crate) fn find<'a>(all: &'a [SampleSeries], group: &str, name: &str) -> Option<&'a SampleSeries> {
    all.iter().find(|series| series.group == group && series.name == name)
}
