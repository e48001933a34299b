//! Formats what is spent, and the forecast, as short text.

use ralph_core::budget::{Budget, BudgetKind};
use ralph_web::view::SpendForecast;

use super::text_layout::{format_count, format_duration, format_money};

/// Formats an amount of a budget.
pub(super) fn format_amount(limit: BudgetKind, value: u64) -> String {
    match limit {
        BudgetKind::Iterations => value.to_string(),
        BudgetKind::Time => format_duration(value),
        BudgetKind::Cost => format_money(ralph_core::money::MicroUsd(value)),
        BudgetKind::Tokens => format!("{} tokens", format_count(value)),
    }
}

/// Describes the forecast: something left at the last iteration, or an earlier end.
pub(super) fn forecast_text(forecast: SpendForecast, budget: &Budget) -> String {
    match forecast {
        SpendForecast::RunsOut { limit, iteration } => {
            let what = match limit {
                BudgetKind::Cost => "the money ends",
                BudgetKind::Tokens => "the tokens end",
                BudgetKind::Time | BudgetKind::Iterations => "the time ends",
            };
            format!("at this pace {what} in iteration {iteration} of {}", budget.iterations)
        }
        SpendForecast::Lasts { limit, projected, whole } => {
            let whole = whole.map(|whole| format!(" of {}", format_amount(limit, whole))).unwrap_or_default();
            format!("at this pace {}{whole} by iteration {}", format_amount(limit, projected), budget.iterations)
        }
    }
}

#[cfg(test)]
mod tests {
    use ralph_core::budget::BudgetUsage;
    use ralph_core::money::MicroUsd;
    use ralph_web::view::{SpendHistory, forecast};

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
        let words = forecast(&budget, &now, &burn).map(|forecast| forecast_text(forecast, &budget));
        assert_eq!(words.as_deref(), want, "{points:?} of {cap:?}");
    }

    #[test]
    fn forecasts() {
        check(&[], Some(10_000_000), None);
        check(&[(1, 100_000)], Some(10_000_000), Some("at this pace $1 of $10 by iteration 10"));
        check(&[(1, 2_000_000)], Some(10_000_000), Some("at this pace the money ends in iteration 6 of 10"));
        check(&[(1, 100_000), (2, 200_000)], None, Some("at this pace $1 by iteration 10"));
        check(&[(1, 0)], None, Some("at this pace 10m00s of 30m00s by iteration 10"));
        // Only the last five count: the earlier iterations were expensive, the later ones are cheap.
        let points = [(1, 5_000_000), (2, 5_000_000), (3, 5_000_000), (4, 5_000_000), (5, 5_000_000), (6, 5_000_000)];
        check(&points, Some(10_000_000), Some("at this pace $5 of $10 by iteration 10"));
        // The budget is used up.
        check(&[(1, 10_000_000)], Some(10_000_000), Some("at this pace the money ends in iteration 2 of 10"));
    }
}
