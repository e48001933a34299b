//! Tracks how a budget is used up: what was spent after each iteration, and the forecast.

use ralph_core::budget::{Budget, BudgetKind, BudgetUsage};

/// How many of the last iterations determine the pace.
const PACE_WINDOW: usize = 5;

/// How many points are kept; older ones are thinned out.
const MAX_POINTS: usize = 2000;

/// What had been spent when an iteration ended.
#[derive(Debug, Default)]
pub struct SpendHistory(Vec<BudgetUsage>);

impl SpendHistory {
    pub fn push(&mut self, spent: BudgetUsage) {
        // An iteration that is run again replaces its earlier point.
        while self.0.last().is_some_and(|point| point.iterations >= spent.iterations) {
            self.0.pop();
        }
        if self.0.len() == MAX_POINTS {
            let mut at = 0;
            self.0.retain(|_| {
                at += 1;
                at % 2 == 0
            });
        }
        self.0.push(spent);
    }

    /// Returns what was spent up to an iteration.
    pub fn spent_at(&self, limit: BudgetKind, iteration: f64) -> u64 {
        let before = self.0.iter().rev().find(|point| f64::from(point.iterations) <= iteration);
        before.map_or(0, |point| point.of(limit))
    }

    /// Returns the number of the last iteration that ended.
    pub fn last_iteration(&self) -> u32 {
        self.0.last().map_or(0, |point| point.iterations)
    }

    /// Returns what an iteration takes on average over the last few; `None` before the first has ended.
    pub fn pace(&self, limit: BudgetKind) -> Option<f64> {
        let last = self.0.last()?;
        let from = self.0.len().checked_sub(PACE_WINDOW + 1).and_then(|at| self.0.get(at)).copied().unwrap_or_default();
        let iterations = last.iterations.saturating_sub(from.iterations);
        (iterations > 0).then(|| last.of(limit).saturating_sub(from.of(limit)) as f64 / f64::from(iterations))
    }

    /// Returns what will have been spent when an iteration ends, at the current pace.
    pub fn projected(&self, limit: BudgetKind, spent: &BudgetUsage, iteration: f64) -> Option<f64> {
        let ahead = (iteration - f64::from(self.last_iteration())).max(0.0);
        Some(spent.of(limit) as f64 + self.pace(limit)? * ahead)
    }
}

/// Returns the budget to chart: money, then tokens, then time.
pub fn charted_limit(budget: &Budget, spent: &BudgetUsage) -> BudgetKind {
    if budget.cost.is_some() || spent.cost.0 > 0 {
        BudgetKind::Cost
    } else if budget.tokens.is_some() {
        BudgetKind::Tokens
    } else {
        BudgetKind::Time
    }
}

/// The forecast at the pace of the last iterations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpendForecast {
    /// The budget is used up in an iteration before the last.
    RunsOut { limit: BudgetKind, iteration: u32 },
    /// The amount that will have been spent after the last iteration.
    Lasts { limit: BudgetKind, projected: u64, whole: Option<u64> },
}

/// Returns the forecast; `None` before the first iteration has ended.
pub fn forecast(budget: &Budget, spent: &BudgetUsage, burn: &SpendHistory) -> Option<SpendForecast> {
    let limit = charted_limit(budget, spent);
    let pace = burn.pace(limit)?;
    let end = f64::from(budget.iterations);
    let projected = whole_number(burn.projected(limit, spent, end)?);
    match budget.of(limit) {
        Some(whole) if projected > whole => {
            let left = whole.saturating_sub(spent.of(limit)) as f64;
            let ends = (f64::from(burn.last_iteration()) + (left / pace).floor() + 1.0).min(end);
            let iteration = u32::try_from(whole_number(ends)).unwrap_or(budget.iterations);
            Some(SpendForecast::RunsOut { limit, iteration })
        }
        whole => Some(SpendForecast::Lasts { limit, projected, whole }),
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "never negative, and a float cast saturates"
)]
fn whole_number(value: f64) -> u64 {
    value as u64
}

#[cfg(test)]
mod tests {
    use ralph_core::money::MicroUsd;

    use super::*;

    fn spent(iterations: u32, cost: u64) -> BudgetUsage {
        BudgetUsage { iterations, wall_ms: u64::from(iterations) * 60_000, cost: MicroUsd(cost), tokens: 0 }
    }

    #[test]
    fn many_points_are_thinned() {
        let mut burn = SpendHistory::default();
        for n in 1..=10_000 {
            burn.push(spent(n, u64::from(n)));
        }
        assert!(burn.0.len() <= MAX_POINTS);
        assert_eq!((burn.last_iteration(), burn.spent_at(BudgetKind::Cost, 10_000.0)), (10_000, 10_000));
        burn.push(spent(5, 5));
        assert_eq!(burn.last_iteration(), 5);
    }
}
