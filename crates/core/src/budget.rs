//! Compares what a run has used with the limits it was given.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::money::MicroUsd;
use crate::price::Price;

/// The hard limits of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    pub iterations: u32,
    pub wall_ms: u64,
    pub cost: Option<MicroUsd>,
    pub tokens: Option<u64>,
    pub consecutive_gutter: u32,
}

/// What a run has used so far. Paused time is not in `wall_ms`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetUsage {
    pub iterations: u32,
    pub wall_ms: u64,
    pub cost: MicroUsd,
    pub tokens: u64,
}

/// A kind of budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BudgetKind {
    Iterations,
    Time,
    Cost,
    Tokens,
}

impl fmt::Display for BudgetKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Iterations => "iterations",
            Self::Time => "time",
            Self::Cost => "cost",
            Self::Tokens => "tokens",
        })
    }
}

impl BudgetKind {
    pub const ALL: [Self; 4] = [Self::Iterations, Self::Time, Self::Cost, Self::Tokens];

    /// Returns the flag of `ralph resume` that raises this budget, with a sensible amount.
    pub fn raise_flag(self) -> &'static str {
        match self {
            Self::Iterations => "--add-iterations 10",
            Self::Time => "--add-minutes 60",
            Self::Cost => "--add-cost 5",
            Self::Tokens => "--add-tokens 1000000",
        }
    }
}

/// The shares of a budget at which a warning is given.
pub const WARN_AT: [u8; 3] = [50, 80, 95];

impl Budget {
    /// Returns whether a cap limits calls of this price: a cost cap cannot when the price is unknown, so a token cap is
    /// needed then.
    pub fn can_enforce(&self, price: Option<&Price>) -> bool {
        price.is_some() || self.tokens.is_some()
    }

    /// Returns the first budget that is used up, so that nothing more may be started.
    pub fn exhausted(&self, spent: &BudgetUsage) -> Option<BudgetKind> {
        BudgetKind::ALL.into_iter().find(|limit| {
            self.of(*limit).is_some_and(|whole| match limit {
                BudgetKind::Iterations => u64::from(spent.iterations) >= whole,
                BudgetKind::Time => spent.wall_ms >= whole,
                BudgetKind::Cost => spent.cost.0 >= whole,
                BudgetKind::Tokens => spent.tokens >= whole,
            })
        })
    }

    /// Returns the budget that forbids another model call inside an iteration that has started.
    pub fn forbids_call(&self, spent: &BudgetUsage) -> Option<BudgetKind> {
        // The iteration under way was already counted when it started.
        self.exhausted(&BudgetUsage { iterations: 0, ..*spent })
    }

    /// Returns the highest warning share reached for each kind of budget.
    pub fn warnings(&self, spent: &BudgetUsage) -> Vec<(BudgetKind, u8)> {
        BudgetKind::ALL
            .into_iter()
            .filter_map(|limit| {
                let whole = self.of(limit).filter(|whole| *whole > 0)?;
                let used = u128::from(spent.of(limit)) * 100 / u128::from(whole);
                let percent = WARN_AT.into_iter().rfind(|percent| used >= u128::from(*percent))?;
                Some((limit, percent))
            })
            .collect()
    }

    pub fn of(&self, limit: BudgetKind) -> Option<u64> {
        match limit {
            BudgetKind::Iterations => Some(u64::from(self.iterations)),
            BudgetKind::Time => Some(self.wall_ms),
            BudgetKind::Cost => self.cost.map(|cost| cost.0),
            BudgetKind::Tokens => self.tokens,
        }
    }

    /// Adds to the budgets; a budget that has no limit stays without one.
    pub fn raise(&mut self, iterations: u32, minutes: u64, cost: MicroUsd, tokens: u64) {
        self.iterations = self.iterations.saturating_add(iterations);
        self.wall_ms = self.wall_ms.saturating_add(minutes.saturating_mul(60_000));
        self.cost = self.cost.map(|old| old + cost);
        self.tokens = self.tokens.map(|old| old.saturating_add(tokens));
    }
}

impl BudgetUsage {
    pub fn of(&self, limit: BudgetKind) -> u64 {
        match limit {
            BudgetKind::Iterations => u64::from(self.iterations),
            BudgetKind::Time => self.wall_ms,
            BudgetKind::Cost => self.cost.0,
            BudgetKind::Tokens => self.tokens,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget() -> Budget {
        Budget { iterations: 10, wall_ms: 1000, cost: Some(MicroUsd(100)), tokens: None, consecutive_gutter: 3 }
    }

    fn spent(iterations: u32, wall_ms: u64, cost: u64, tokens: u64) -> BudgetUsage {
        BudgetUsage { iterations, wall_ms, cost: MicroUsd(cost), tokens }
    }

    #[test]
    fn the_first_exhausted_budget_is_returned() {
        for (used, want) in [
            (spent(9, 999, 99, u64::MAX), None),
            (spent(10, 0, 0, 0), Some(BudgetKind::Iterations)),
            (spent(0, 1000, 0, 0), Some(BudgetKind::Time)),
            (spent(0, 0, 100, 0), Some(BudgetKind::Cost)),
        ] {
            assert_eq!(budget().exhausted(&used), want, "{used:?}");
        }
        let tokens = Budget { tokens: Some(5), ..budget() };
        assert_eq!(tokens.exhausted(&spent(0, 0, 0, 5)), Some(BudgetKind::Tokens));
        assert_eq!(budget().forbids_call(&spent(10, 0, 0, 0)), None);
        assert_eq!(budget().forbids_call(&spent(10, 0, 100, 0)), Some(BudgetKind::Cost));
    }

    #[test]
    fn an_unknown_price_needs_a_token_cap() {
        let free = Price::per_mtok_usd(0.0, 0.0, None);
        let capped = Budget { tokens: Some(5), ..budget() };
        for (budget, price, want) in [
            (budget(), Some(&free), true),
            (budget(), None, false),
            (Budget { cost: None, ..budget() }, None, false),
            (capped.clone(), None, true),
            (Budget { cost: None, ..capped }, None, true),
        ] {
            assert_eq!(budget.can_enforce(price), want, "{budget:?} {price:?}");
        }
    }

    #[test]
    fn warnings_report_the_highest_share_reached() {
        for (used, want) in [
            (spent(4, 0, 0, 0), vec![]),
            (spent(5, 0, 0, 0), vec![(BudgetKind::Iterations, 50)]),
            (spent(8, 949, 0, 0), vec![(BudgetKind::Iterations, 80), (BudgetKind::Time, 80)]),
            (spent(0, 0, 96, 0), vec![(BudgetKind::Cost, 95)]),
        ] {
            assert_eq!(budget().warnings(&used), want, "{used:?}");
        }
    }

    #[test]
    fn raising_keeps_missing_limits_missing() {
        let mut raised = budget();
        raised.raise(5, 1, MicroUsd(50), 7);
        let want =
            Budget { iterations: 15, wall_ms: 61_000, cost: Some(MicroUsd(150)), tokens: None, consecutive_gutter: 3 };
        assert_eq!(raised, want);
    }
}
