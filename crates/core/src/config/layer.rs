//! One layer: what somebody said, and who.

use super::origin::ConfigOrigin;
use super::values::ConfigValues;

/// What one origin said.
#[derive(Debug, Clone, PartialEq)]
pub struct ConfigLayer {
    pub origin: ConfigOrigin,
    pub values: ConfigValues,
}

impl ConfigLayer {
    /// Makes the layer of the command line. Its `allowed` hosts are added to the policy; everything else replaces.
    pub fn flags(values: ConfigValues) -> Self {
        Self { origin: ConfigOrigin::Flag, values }
    }
}
