//! Records which models did the work: every model that was called, with its calls and their cost.

use serde::Serialize;

use crate::money::MicroUsd;
use crate::receipt::ReceiptModel;

/// The calls and the cost of one model.
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

    /// Returns the entry for a receipt.
    pub fn to_receipt(&self, model: &str) -> ReceiptModel {
        ReceiptModel { model: model.to_owned(), calls: self.calls, cost_micro_usd: self.cost }
    }
}
