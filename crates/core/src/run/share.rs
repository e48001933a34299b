//! Who did the work: every model that was called, with its calls and what they cost.

use serde::Serialize;

use crate::money::Micros;
use crate::receipt::Used;

/// What one model was asked and paid.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Share {
    pub calls: u64,
    pub cost: Micros,
}

impl Share {
    pub(super) fn add(&mut self, calls: u64, cost: Micros) {
        self.calls = self.calls.saturating_add(calls);
        self.cost += cost;
    }

    /// Returns it as a receipt tells it.
    pub fn of(&self, model: &str) -> Used {
        Used { model: model.to_owned(), calls: self.calls, cost_micro_usd: self.cost }
    }
}
