//! Holds the samples of one measurement and computes its percentiles.

use ralph_testkit::bench::percentile;
use serde::Serialize;

/// The times of one measurement in ms, or why it could not be made.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct SandboxBenchSeries {
    pub(crate) group: &'static str,
    pub(crate) name: String,
    pub(crate) times: Vec<f64>,
    pub(crate) missing: Option<String>,
}

impl SandboxBenchSeries {
    pub(crate) fn new(group: &'static str, name: impl Into<String>) -> Self {
        Self { group, name: name.into(), times: Vec::new(), missing: None }
    }

    pub(crate) fn missing(group: &'static str, name: impl Into<String>, why: impl Into<String>) -> Self {
        Self { missing: Some(why.into()), ..Self::new(group, name) }
    }

    /// Returns the median, if there are samples.
    pub(crate) fn p50(&self) -> Option<f64> {
        percentile(&self.times, 50)
    }

    pub(crate) fn p90(&self) -> Option<f64> {
        percentile(&self.times, 90)
    }
}

/// Finds a series by its group and name.
pub(crate) fn find<'a>(all: &'a [SandboxBenchSeries], group: &str, name: &str) -> Option<&'a SandboxBenchSeries> {
    all.iter().find(|series| series.group == group && series.name == name)
}
