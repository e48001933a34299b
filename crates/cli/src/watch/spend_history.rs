//! How a budget is being used up: what was spent after each iteration, and where that leads.

use ralph_core::budget::{Budget, BudgetKind, BudgetUsage};

use super::text::{format_count, format_duration, format_money};

/// How many of the last iterations say how fast it goes.
const PACE_WINDOW: usize = 5;

/// How many points are kept; older ones are thinned out.
const MAX_POINTS: usize = 2000;

/// What had been spent when an iteration ended.
#[derive(Debug, Default)]
pub(super) struct SpendHistory(Vec<BudgetUsage>);

impl SpendHistory {
    pub(super) fn push(&mut self, spent: BudgetUsage) {
        // One that is made again replaces what came of it.
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
    pub(super) fn spent_at(&self, limit: BudgetKind, iteration: f64) -> u64 {
        let before = self.0.iter().rev().find(|point| f64::from(point.iterations) <= iteration);
        before.map_or(0, |point| point.of(limit))
    }

    /// Returns the number of the last iteration that ended.
    pub(super) fn last_iteration(&self) -> u32 {
        self.0.last().map_or(0, |point| point.iterations)
    }

    /// Returns what an iteration takes by the last few; `None` before the first has ended.
    pub(super) fn pace(&self, limit: BudgetKind) -> Option<f64> {
        let last = self.0.last()?;
        let from = self.0.len().checked_sub(PACE_WINDOW + 1).and_then(|at| self.0.get(at)).copied().unwrap_or_default();
        let iterations = last.iterations.saturating_sub(from.iterations);
        (iterations > 0).then(|| last.of(limit).saturating_sub(from.of(limit)) as f64 / f64::from(iterations))
    }

    /// Returns what will have been spent when an iteration ends, if it goes on like this.
    pub(super) fn projected(&self, limit: BudgetKind, spent: &BudgetUsage, iteration: f64) -> Option<f64> {
        let ahead = (iteration - f64::from(self.last_iteration())).max(0.0);
        Some(spent.of(limit) as f64 + self.pace(limit)? * ahead)
    }
}

/// Returns the budget whose use is worth a picture: money, then tokens, then time.
pub(super) fn charted_limit(budget: &Budget, spent: &BudgetUsage) -> BudgetKind {
    if budget.cost.is_some() || spent.cost.0 > 0 {
        BudgetKind::Cost
    } else if budget.tokens.is_some() {
        BudgetKind::Tokens
    } else {
        BudgetKind::Time
    }
}

/// Writes an amount of a budget.
pub(super) fn format_amount(limit: BudgetKind, value: u64) -> String {
    match limit {
        BudgetKind::Iterations => value.to_string(),
        BudgetKind::Time => format_duration(value),
        BudgetKind::Cost => format_money(ralph_core::money::MicroUsd(value)),
        BudgetKind::Tokens => format!("{} tokens", format_count(value)),
    }
}

/// Says where the pace leads: to the last iteration with something left, or to an earlier end.
pub(super) fn forecast(budget: &Budget, spent: &BudgetUsage, burn: &SpendHistory) -> Option<String> {
    let limit = charted_limit(budget, spent);
    let pace = burn.pace(limit)?;
    let end = f64::from(budget.iterations);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "never negative, and a float cast saturates"
    )]
    let projected = burn.projected(limit, spent, end)? as u64;
    match budget.of(limit) {
        Some(whole) if projected > whole => {
            let left = whole.saturating_sub(spent.of(limit)) as f64;
            let ends = (f64::from(burn.last_iteration()) + (left / pace).floor() + 1.0).min(end);
            let what = match limit {
                BudgetKind::Cost => "the money ends",
                BudgetKind::Tokens => "the tokens end",
                BudgetKind::Time | BudgetKind::Iterations => "the time ends",
            };
            Some(format!("at this pace {what} in iteration {ends:.0} of {}", budget.iterations))
        }
        Some(whole) => Some(format!(
            "at this pace {} of {} by iteration {}",
            format_amount(limit, projected),
            format_amount(limit, whole),
            budget.iterations
        )),
        None => Some(format!("at this pace {} by iteration {}", format_amount(limit, projected), budget.iterations)),
    }
}

#[cfg(test)]
mod tests {
    use ralph_core::money::MicroUsd;

    use super::*;

    fn spent(iterations: u32, cost: u64) -> BudgetUsage {
        BudgetUsage { iterations, wall_ms: u64::from(iterations) * 60_000, cost: MicroUsd(cost), tokens: 0 }
    }

    #[track_caller]
    fn check(points: &[(u32, u64)], cap: Option<u64>, want: Option<&str>) {
        let mut burn = SpendHistory::default();
        for (n, cost) in points {
            burn.push(spent(*n, *cost));
        }
        let now = points.last().map_or(BudgetUsage::default(), |(n, cost)| spent(*n, *cost));
        let budget =
            Budget { iterations: 10, wall_ms: 1_800_000, cost: cap.map(MicroUsd), tokens: None, consecutive_gutter: 3 };
        assert_eq!(forecast(&budget, &now, &burn).as_deref(), want, "{points:?} of {cap:?}");
    }

    #[test]
    fn outlooks() {
        check(&[], Some(10_000_000), None);
        check(&[(1, 100_000)], Some(10_000_000), Some("at this pace $1 of $10 by iteration 10"));
        check(&[(1, 2_000_000)], Some(10_000_000), Some("at this pace the money ends in iteration 6 of 10"));
        check(&[(1, 100_000), (2, 200_000)], None, Some("at this pace $1 by iteration 10"));
        check(&[(1, 0)], None, Some("at this pace 10m00s of 30m00s by iteration 10"));
        // Only the last five count: it was dear once and is cheap now.
        let points = [(1, 5_000_000), (2, 5_000_000), (3, 5_000_000), (4, 5_000_000), (5, 5_000_000), (6, 5_000_000)];
        check(&points, Some(10_000_000), Some("at this pace $5 of $10 by iteration 10"));
        // All is spent.
        check(&[(1, 10_000_000)], Some(10_000_000), Some("at this pace the money ends in iteration 2 of 10"));
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
