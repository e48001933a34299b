//! Charges a model call: from its reservation to its actual cost.

use std::sync::Arc;

use hyper::HeaderMap;
use ralph_core::money::MicroUsd;
use ralph_core::price::{CacheLifetime, Price, TokenUsage};

use super::route::RouteModels;
use crate::egress_events::{ChargeBasis, ChargedCall};
use crate::ledger::Reservation;
use crate::meter::{MeteredAnswer, is_same_model};

/// A call that was allowed, and its reservation.
#[derive(Debug)]
pub(crate) struct PendingCharge {
    pub(crate) id: u64,
    pub(crate) reservation: Reservation,
    pub(crate) price: Option<Price>,
    pub(crate) route: String,
    pub(crate) model: String,
    /// All models that may be called on the route: a gateway may answer with another than the requested one.
    pub(crate) models: Arc<RouteModels>,
    /// The model that says it answered, if it is another.
    pub(crate) answered_by: Option<String>,
    /// The worst case in tokens.
    pub(crate) input: u64,
    pub(crate) output: u64,
    pub(crate) writes: CacheLifetime,
    pub(crate) limits: Vec<(String, String)>,
    /// The provider answered with an error: providers do not charge for that, unless the error says what it cost.
    pub(crate) refused: bool,
}

impl PendingCharge {
    /// Charges what an answer reported as usage, or the worst case if no final usage was seen. `begun` says whether
    /// the model had begun to answer.
    pub(crate) fn settle(mut self, seen: &MeteredAnswer, begun: bool) -> ChargedCall {
        self.answered_by = seen.model.clone().filter(|said| !is_same_model(&self.model, said));
        if self.refused {
            return match seen.usage {
                Some(usage) if usage.total() > 0 => self.charge_reported(usage),
                _ => self.charge_nothing(),
            };
        }
        // A failure in the middle leaves output that was generated and not counted.
        let failed_first = seen.failed.is_some() && !begun;
        match &seen.usage {
            Some(usage) if seen.complete || failed_first => self.charge_reported(*usage),
            None if failed_first => self.charge_nothing(),
            _ => self.charge_worst_case(),
        }
    }

    /// Records the status of an answer.
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

    /// Charges a call whose answer cannot be read.
    pub(crate) fn charge_unreadable(self) -> ChargedCall {
        if self.refused { self.charge_nothing() } else { self.charge_worst_case() }
    }

    /// Charges the whole reservation.
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

    /// Returns what the call costs at the price of the model that says it answered; zero if that is the requested
    /// model, or one whose price is unknown.
    fn cost_at_answering_model(&self, cost: impl Fn(Price) -> MicroUsd) -> MicroUsd {
        let Some(by) = &self.answered_by else { return MicroUsd::ZERO };
        let known = self.models.iter().filter(|(name, _)| is_same_model(name, by));
        known.filter_map(|(_, model)| model.price).map(cost).max().unwrap_or(MicroUsd::ZERO)
    }

    fn printable_answering_model(&self) -> Option<String> {
        self.answered_by.as_deref().map(|by| ralph_core::text::strip_control(ralph_core::text::first_line(by, 80)))
    }
}

/// Returns the headers in which a provider reports its rate limits.
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
