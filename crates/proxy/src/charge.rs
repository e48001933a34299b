//! A call of a model between its reservation and its bill.

use hyper::HeaderMap;
use ralph_core::money::Micros;
use ralph_core::price::{Price, Usage};

use crate::ledger::Reservation;
use crate::meter::Seen;
use crate::notice::{Call, Charge};

/// A call that was let through, and what was set aside for it.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) id: u64,
    pub(crate) reservation: Reservation,
    pub(crate) price: Option<Price>,
    pub(crate) route: String,
    pub(crate) model: String,
    /// The worst case in tokens.
    pub(crate) input: u64,
    pub(crate) output: u64,
    pub(crate) limits: Vec<(String, String)>,
    /// The provider answered with an error: nobody charges for that, unless it says what it cost.
    pub(crate) refused: bool,
}

impl Pending {
    /// Charges what an answer said it used, or the worst case when nobody saw the final count. `begun` says whether the
    /// model had begun to answer.
    pub(crate) fn settle(self, seen: &Seen, begun: bool) -> Call {
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
        Call { id, route, model, usage: Usage::default(), cost: Micros::ZERO, charge: Charge::Nothing, limits }
    }

    /// Charges an answer that cannot be read.
    pub(crate) fn unread(self) -> Call {
        if self.refused { self.nothing() } else { self.worst() }
    }

    /// Charges all that was set aside.
    pub(crate) fn worst(self) -> Call {
        let Self { id, reservation, route, model, input, output, limits, .. } = self;
        let worst = reservation.worst();
        reservation.settle(worst.cost, worst.tokens);
        let usage = Usage { input, output, ..Usage::default() };
        Call { id, route, model, usage, cost: worst.cost, charge: Charge::Worst, limits }
    }

    fn reported(self, usage: Usage) -> Call {
        let Self { id, reservation, price, route, model, limits, .. } = self;
        let cost = price.map_or(Micros::ZERO, |price| price.cost(&usage));
        reservation.settle(cost, usage.total());
        Call { id, route, model, usage, cost, charge: Charge::Reported, limits }
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
