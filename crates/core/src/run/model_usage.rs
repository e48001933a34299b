//! Who did the work: every model that was called, with its calls and what they cost.

use serde::Serialize;

use crate::money::MicroUsd;
use crate::receipt::ReceiptModel;

/// What one model was asked and paid.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ModelUsage {
    pub calls: u64,
    pub cost: MicroUsd,
}

impl ModelUsage {
    pub(super) fn add(&mut self, calls: u64, cost: MicroUsd) {
        self.calls = self.calls.saturating_add(calls);
        self.cost += cost;
    }

    /// Returns it as a receipt tells it.
    pub fn to_receipt(&self, model: &str) -> ReceiptModel {
        ReceiptModel { model: model.to_owned(), calls: self.calls, cost_micro_usd: self.cost }
    }
}
