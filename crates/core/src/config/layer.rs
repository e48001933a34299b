//! Defines one layer of the config: values and their origin.

use super::config_keys::ConfigValues;
use super::origin::ConfigOrigin;

/// The values of one origin.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfigLayer {
    pub origin: ConfigOrigin,
    pub values: ConfigValues,
}

impl ConfigLayer {
    /// Creates the layer of the command line. Its `allowed` hosts are added to the policy; everything else replaces.
    pub fn flags(values: ConfigValues) -> Self {
        Self { origin: ConfigOrigin::Flag, values }
    }
}
