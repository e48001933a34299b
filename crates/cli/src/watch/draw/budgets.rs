//! Draws the budgets as bars, the forecast and the loop score, and below them the burn-down chart if the screen is
//! large enough.

use ralph_core::budget::BudgetKind;
use ralph_core::gutter::GUTTER_THRESHOLD;
use ralph_core::run::RunState;
use ralph_web::view::{SpendForecast, forecast};
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::super::model::WatchModel;
use super::super::spend_text::forecast_text;
use super::super::text_layout::{
    align_left, align_right, bar, display_width, format_count, format_duration, format_money, format_time_limit,
    truncate,
};
use super::chart;
use super::theme::{TextTone, style};
use crate::render::sparkline;

/// Returns the panel: a bar for each budget, the pace, the loop score and the burn-down.
pub(super) fn lines(model: &WatchModel, area: Rect) -> Vec<Line<'static>> {
    let width = usize::from(area.width);
    let Some(state) = &model.run.state else { return Vec::new() };
    if area.is_empty() {
        return Vec::new();
    }
    let uses: Vec<(BudgetKind, BudgetBar)> =
        shown_limits(state).map(|limit| (limit, BudgetBar::new(model, state, limit))).collect();
    let numbers = uses.iter().map(|(_, used)| display_width(&used.words)).max().unwrap_or(0);
    let one = |(limit, used): &(BudgetKind, BudgetBar)| {
        let percent = used.share.map_or_else(|| "no cap".to_owned(), |share| format!("{:.0} %", share * 100.0));
        used.line(model, &limit.to_string(), 11, &(align_left(&used.words, numbers) + &align_right(&percent, 7)), width)
    };
    let mut lines: Vec<Line<'static>> = uses.iter().map(one).collect();
    lines.push(forecast_line(model, state, width));
    lines.push(loop_score_line(model, state, width));
    let left = usize::from(area.height).saturating_sub(lines.len() + 1);
    if left >= 5 {
        lines.push(Line::default());
        lines.extend(chart::lines(model, state, width, left));
    }
    lines
}

/// Returns one or two lines for a screen without room for a panel.
pub(super) fn summary_lines(model: &WatchModel, area: Rect) -> Vec<Line<'static>> {
    let width = usize::from(area.width);
    let Some(state) = &model.run.state else { return Vec::new() };
    if area.is_empty() {
        return Vec::new();
    }
    let limits = [BudgetKind::Iterations, BudgetKind::Time, BudgetKind::Cost];
    if width < 60 {
        let words: Vec<String> = limits.iter().map(|limit| BudgetBar::new(model, state, *limit).words).collect();
        let first = truncate(&format!(" #{}", words.join("  ")), width);
        let boxes = format!(" boxes {}/{} ", state.verified.len(), state.started.boxes.len());
        let mut second = vec![Span::raw(boxes)];
        second.extend(loop_score_line(model, state, width.saturating_sub(12)).spans);
        return vec![Line::from(first), Line::from(second)];
    }
    let each = width / limits.len();
    let bars = limits.iter().zip(["iter", "time", "cost"]);
    let bars = bars.flat_map(|(limit, name)| {
        let used = BudgetBar::new(model, state, *limit);
        used.line(model, name, 5, &used.words, each).spans
    });
    let first = Line::from(bars.collect::<Vec<_>>());
    let mut second = loop_score_line(model, state, width).spans;
    let used: usize = second.iter().map(Span::width).sum();
    let pace = forecast_line(model, state, width.saturating_sub(used + 2));
    second.push(Span::raw("  "));
    second.extend(pace.spans);
    vec![first, Line::from(second)]
}

/// Returns the limits to show; tokens only if they are limited.
fn shown_limits(state: &RunState) -> impl Iterator<Item = BudgetKind> {
    let tokens = state.budget.tokens.is_some() || state.spent.tokens > 0;
    BudgetKind::ALL.into_iter().filter(move |limit| *limit != BudgetKind::Tokens || tokens)
}

/// What is used of one budget.
struct BudgetBar {
    words: String,
    /// Between 0 and 1; `None` without a limit.
    share: Option<f64>,
}

impl BudgetBar {
    fn new(model: &WatchModel, state: &RunState, limit: BudgetKind) -> Self {
        let used = if limit == BudgetKind::Time { model.worked_ms(state) } else { state.spent.of(limit) };
        let whole = state.budget.of(limit);
        let write = |value: u64| match limit {
            BudgetKind::Iterations => value.to_string(),
            BudgetKind::Time => format_time_limit(value),
            BudgetKind::Cost => format_money(ralph_core::money::MicroUsd(value)),
            BudgetKind::Tokens => format_count(value),
        };
        let now = if limit == BudgetKind::Time { format_duration(used) } else { write(used) };
        Self {
            words: whole.map_or_else(|| now.clone(), |whole| format!("{now}/{}", write(whole))),
            share: whole.map(|whole| if whole == 0 { 1.0 } else { (used as f64 / whole as f64).clamp(0.0, 1.0) }),
        }
    }

    /// Writes name, bar and numbers in exactly the width.
    fn line(&self, model: &WatchModel, name: &str, name_width: usize, numbers: &str, width: usize) -> Line<'static> {
        let room = width.saturating_sub(name_width + display_width(numbers) + 3);
        let full = self.share.map_or_else(String::new, |share| bar(share, room));
        let tone = match self.share {
            Some(share) if share >= 0.95 => TextTone::Bad,
            Some(share) if share >= 0.8 => TextTone::Warn,
            _ => TextTone::Accent,
        };
        let empty = if self.share.is_some() { "░" } else { " " };
        let empty = empty.repeat(room.saturating_sub(display_width(&full)));
        Line::from(vec![
            Span::raw(align_left(&format!(" {name}"), name_width + 1)),
            Span::styled(full, style(model, tone)),
            Span::styled(empty, style(model, TextTone::Dim)),
            Span::raw(format!(" {numbers} ")),
        ])
    }
}

fn forecast_line(model: &WatchModel, state: &RunState, width: usize) -> Line<'static> {
    let active = state.status.is_active();
    let forecast = forecast(&state.budget, &state.spent, &model.run.spend).filter(|_| active);
    let tone = if matches!(forecast, Some(SpendForecast::RunsOut { .. })) { TextTone::Warn } else { TextTone::Dim };
    let words = forecast.map(|forecast| forecast_text(forecast, &state.budget)).unwrap_or_default();
    Line::styled(truncate(&format!(" {words}"), width), style(model, tone))
}

fn loop_score_line(model: &WatchModel, state: &RunState, width: usize) -> Line<'static> {
    let Some(score) = state.scores.back().copied() else {
        return Line::styled(truncate(" loop score: none yet", width), style(model, TextTone::Dim));
    };
    let gutter = score >= GUTTER_THRESHOLD;
    let room = width.saturating_sub(if gutter { 21 } else { 14 }).min(24);
    let scores: Vec<f64> = state.scores.iter().rev().take(room).rev().copied().collect();
    let (word, tone) = if gutter { (" gutter", TextTone::Bad) } else { ("", TextTone::Plain) };
    Line::from(vec![
        Span::raw(" loop "),
        Span::styled(format!("{score:.1} "), style(model, tone)),
        Span::styled(sparkline(&scores), style(model, if gutter { TextTone::Bad } else { TextTone::Accent })),
        Span::styled(word, style(model, tone)),
    ])
}
