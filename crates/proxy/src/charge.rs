//! A call of a model between its reservation and its bill.

use std::sync::Arc;

use hyper::HeaderMap;
use ralph_core::money::Micros;
use ralph_core::price::{CacheWrites, Price, Usage};

use crate::ledger::Reservation;
use crate::meter::{Seen, is_same_model};
use crate::notice::{Call, Charge};
use crate::route::Models;

/// A call that was let through, and what was set aside for it.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) id: u64,
    pub(crate) reservation: Reservation,
    pub(crate) price: Option<Price>,
    pub(crate) route: String,
    pub(crate) model: String,
    /// All that may be called there: a gateway may answer with another than was asked.
    pub(crate) models: Arc<Models>,
    /// The one that says it answered, if it is another.
    pub(crate) answered_by: Option<String>,
    /// The worst case in tokens.
    pub(crate) input: u64,
    pub(crate) output: u64,
    pub(crate) writes: CacheWrites,
    pub(crate) limits: Vec<(String, String)>,
    /// The provider answered with an error: nobody charges for that, unless it says what it cost.
    pub(crate) refused: bool,
}

impl Pending {
    /// Charges what an answer said it used, or the worst case when nobody saw the final count. `begun` says whether the
    /// model had begun to answer.
    pub(crate) fn settle(mut self, seen: &Seen, begun: bool) -> Call {
        self.answered_by = seen.model.clone().filter(|said| !is_same_model(&self.model, said));
        if self.refused {
            return match seen.usage {
                Some(usage) if usage.total() > 0 => self.reported(usage),
                _ => self.nothing(),
            };
        }
        // A failure in the middle leaves words that were made and not counted.
        let failed_first = seen.failed.is_some() && !begun;
        match &seen.usage {
            Some(usage) if seen.complete || failed_first => self.reported(*usage),
            None if failed_first => self.nothing(),
            _ => self.worst(),
        }
    }

    /// Notes how an answer began.
    pub(crate) fn answered(&mut self, status: u16) {
        self.refused = !matches!(status, 101 | 200..=299);
    }

    /// Charges nothing: the provider refused the call, or was never reached.
    pub(crate) fn nothing(self) -> Call {
        let Self { id, reservation, route, model, limits, .. } = self;
        reservation.release();
        let (usage, cost, charge) = (Usage::default(), Micros::ZERO, Charge::Nothing);
        Call { id, route, model, answered_by: None, usage, cost, charge, limits }
    }

    /// Charges an answer that cannot be read.
    pub(crate) fn unread(self) -> Call {
        if self.refused { self.nothing() } else { self.worst() }
    }

    /// Charges all that was set aside.
    pub(crate) fn worst(self) -> Call {
        let other = self.others(|price| price.worst_case(self.input, self.output, self.writes));
        let answered_by = self.other();
        let Self { id, reservation, route, model, input, output, limits, .. } = self;
        let worst = reservation.worst();
        let cost = worst.cost.max(other);
        reservation.settle(cost, worst.tokens);
        let usage = Usage { input, output, ..Usage::default() };
        Call { id, route, model, answered_by, usage, cost, charge: Charge::Worst, limits }
    }

    fn reported(self, usage: Usage) -> Call {
        let other = self.others(|price| price.cost(&usage));
        let answered_by = self.other();
        let Self { id, reservation, price, route, model, limits, .. } = self;
        let cost = price.map_or(Micros::ZERO, |price| price.cost(&usage)).max(other);
        reservation.settle(cost, usage.total());
        Call { id, route, model, answered_by, usage, cost, charge: Charge::Reported, limits }
    }

    /// Returns what the call costs at the price of the model that says it answered; nothing where that is the one that
    /// was asked, or one whose price nobody knows here.
    fn others(&self, cost: impl Fn(Price) -> Micros) -> Micros {
        let Some(by) = &self.answered_by else { return Micros::ZERO };
        let known = self.models.iter().filter(|(name, _)| is_same_model(name, by));
        known.filter_map(|(_, model)| model.price).map(cost).max().unwrap_or(Micros::ZERO)
    }

    fn other(&self) -> Option<String> {
        self.answered_by.as_deref().map(|by| ralph_core::text::plain(ralph_core::text::first_line(by, 80)))
    }
}

/// Returns what a provider says about its rate limits.
pub(crate) fn limits(headers: &HeaderMap) -> Vec<(String, String)> {
    let telling = |name: &str| name.contains("ratelimit") || name.starts_with("retry-after");
    let shown = |text: &str| ralph_core::text::plain(ralph_core::text::first_line(text, 80));
    headers
        .iter()
        .filter(|(name, _)| telling(name.as_str()))
        .filter_map(|(name, value)| Some((name.as_str().to_owned(), shown(value.to_str().ok()?))))
        .take(24)
        .collect()
}
