//! A call of a model between its reservation and its bill.

use std::sync::Arc;

use hyper::HeaderMap;
use ralph_core::money::MicroUsd;
use ralph_core::price::{CacheLifetime, Price, TokenUsage};

use super::route::RouteModels;
use crate::ledger::Reservation;
use crate::meter::{MeteredAnswer, is_same_model};
use crate::observer::{ChargeBasis, ChargedCall};

/// A call that was let through, and what was set aside for it.
#[derive(Debug)]
pub(crate) struct PendingCharge {
    pub(crate) id: u64,
    pub(crate) reservation: Reservation,
    pub(crate) price: Option<Price>,
    pub(crate) route: String,
    pub(crate) model: String,
    /// All that may be called there: a gateway may answer with another than was asked.
    pub(crate) models: Arc<RouteModels>,
    /// The one that says it answered, if it is another.
    pub(crate) answered_by: Option<String>,
    /// The worst case in tokens.
    pub(crate) input: u64,
    pub(crate) output: u64,
    pub(crate) writes: CacheLifetime,
    pub(crate) limits: Vec<(String, String)>,
    /// The provider answered with an error: nobody charges for that, unless it says what it cost.
    pub(crate) refused: bool,
}

impl PendingCharge {
    /// Charges what an answer said it used, or the worst case when nobody saw the final count. `begun` says whether the
    /// model had begun to answer.
    pub(crate) fn settle(mut self, seen: &MeteredAnswer, begun: bool) -> ChargedCall {
        self.answered_by = seen.model.clone().filter(|said| !is_same_model(&self.model, said));
        if self.refused {
            return match seen.usage {
                Some(usage) if usage.total() > 0 => self.charge_reported(usage),
                _ => self.charge_nothing(),
            };
        }
        // A failure in the middle leaves words that were made and not counted.
        let failed_first = seen.failed.is_some() && !begun;
        match &seen.usage {
            Some(usage) if seen.complete || failed_first => self.charge_reported(*usage),
            None if failed_first => self.charge_nothing(),
            _ => self.charge_worst_case(),
        }
    }

    /// Notes how an answer began.
    pub(crate) fn record_status(&mut self, status: u16) {
        self.refused = !matches!(status, 101 | 200..=299);
    }

    /// Charges nothing: the provider refused the call, or was never reached.
    pub(crate) fn charge_nothing(self) -> ChargedCall {
        let Self { id, reservation, route, model, limits, .. } = self;
        reservation.release();
        let (usage, cost, charge) = (TokenUsage::default(), MicroUsd::ZERO, ChargeBasis::Nothing);
        ChargedCall { id, route, model, answered_by: None, usage, cost, charge, limits }
    }

    /// Charges an answer that cannot be read.
    pub(crate) fn charge_unreadable(self) -> ChargedCall {
        if self.refused { self.charge_nothing() } else { self.charge_worst_case() }
    }

    /// Charges all that was set aside.
    pub(crate) fn charge_worst_case(self) -> ChargedCall {
        let other = self.cost_at_answering_model(|price| price.worst_case(self.input, self.output, self.writes));
        let answered_by = self.printable_answering_model();
        let Self { id, reservation, route, model, input, output, limits, .. } = self;
        let worst = reservation.worst_case();
        let cost = worst.cost.max(other);
        reservation.settle(cost, worst.tokens);
        let usage = TokenUsage { input, output, ..TokenUsage::default() };
        ChargedCall { id, route, model, answered_by, usage, cost, charge: ChargeBasis::Worst, limits }
    }

    fn charge_reported(self, usage: TokenUsage) -> ChargedCall {
        let other = self.cost_at_answering_model(|price| price.cost(&usage));
        let answered_by = self.printable_answering_model();
        let Self { id, reservation, price, route, model, limits, .. } = self;
        let cost = price.map_or(MicroUsd::ZERO, |price| price.cost(&usage)).max(other);
        reservation.settle(cost, usage.total());
        ChargedCall { id, route, model, answered_by, usage, cost, charge: ChargeBasis::Reported, limits }
    }

    /// Returns what the call costs at the price of the model that says it answered; nothing where that is the one that
    /// was asked, or one whose price nobody knows here.
    fn cost_at_answering_model(&self, cost: impl Fn(Price) -> MicroUsd) -> MicroUsd {
        let Some(by) = &self.answered_by else { return MicroUsd::ZERO };
        let known = self.models.iter().filter(|(name, _)| is_same_model(name, by));
        known.filter_map(|(_, model)| model.price).map(cost).max().unwrap_or(MicroUsd::ZERO)
    }

    fn printable_answering_model(&self) -> Option<String> {
        self.answered_by.as_deref().map(|by| ralph_core::text::strip_control(ralph_core::text::first_line(by, 80)))
    }
}

/// Returns what a provider says about its rate limits.
pub(crate) fn rate_limit_headers(headers: &HeaderMap) -> Vec<(String, String)> {
    let telling = |name: &str| name.contains("ratelimit") || name.starts_with("retry-after");
    let shown = |text: &str| ralph_core::text::strip_control(ralph_core::text::first_line(text, 80));
    headers
        .iter()
        .filter(|(name, _)| telling(name.as_str()))
        .filter_map(|(name, value)| Some((name.as_str().to_owned(), shown(value.to_str().ok()?))))
        .take(24)
        .collect()
}
