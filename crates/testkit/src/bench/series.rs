//! Holds the samples of one measurement.

use serde::Serialize;

use super::percentile::percentile;

/// The samples of one subject in one measurement, or why there are none.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SampleSeries {
    /// The measurement; its series are compared with each other.
    pub group: &'static str,
    pub name: String,
    pub unit: &'static str,
    pub values: Vec<f64>,
    /// Why it could not be measured.
    pub missing: Option<String>,
}

impl SampleSeries {
    pub fn new(group: &'static str, name: impl Into<String>, unit: &'static str) -> Self {
        Self { group, name: name.into(), unit, values: Vec::new(), missing: None }
    }

    /// Returns a series that could not be measured.
    pub fn missing(group: &'static str, name: impl Into<String>, unit: &'static str, why: impl Into<String>) -> Self {
        Self { missing: Some(why.into()), ..Self::new(group, name, unit) }
    }

    /// Returns the median, if there are samples.
    pub fn p50(&self) -> Option<f64> {
        self.percentile(50)
    }

    /// Returns the value below which `percent` of the samples lie, if there are samples.
    pub fn percentile(&self, percent: usize) -> Option<f64> {
        percentile(&self.values, percent)
    }

    /// Returns why there are no samples.
    pub(super) fn missing_reason(&self) -> &str {
        self.missing.as_deref().unwrap_or("there are no samples")
    }
}
