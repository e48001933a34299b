//! One layer: what somebody said, and who.

use super::origin::Origin;
use super::values::Values;

/// What one origin said.
#[derive(Debug, Clone, PartialEq)]
pub struct Layer {
    pub origin: Origin,
    pub values: Values,
}

impl Layer {
    /// Makes the layer of the command line. Its `allowed` hosts are added to the policy; everything else replaces.
    pub fn flags(values: Values) -> Self {
        Self { origin: Origin::Flag, values }
    }
}
