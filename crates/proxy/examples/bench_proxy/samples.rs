//! Samples of one measurement, and their statistics.

use ralph_testkit::bench::percentile;
use serde::Serialize;

/// The series without any proxy; the others are compared with it.
pub(crate) const DIRECT: &str = "direct";

/// The samples of one setup, or why it could not be measured.
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

/// Finds a series by its group and name.
pub(crate) fn find<'a>(all: &'a [SampleSeries], group: &str, name: &str) -> Option<&'a SampleSeries> {
    all.iter().find(|series| series.group == group && series.name == name)
}
