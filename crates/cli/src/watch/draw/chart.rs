//! Draws the burn-down chart: what was spent after each iteration, the forecast, and the limit above.

use ralph_core::run::RunState;
use ralph_web::view::charted_limit;
use ratatui::text::{Line, Span};

use super::super::model::WatchModel;
use super::super::spend_text::format_amount;
use super::super::text_layout::{align_left, align_right, truncate};
use super::theme::{TextTone, style};

/// Columns for the axis labels.
const LABEL_WIDTH: usize = 9;

const EIGHTHS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];

/// Draws the chart in a number of lines, which is at least four.
pub(super) fn lines(model: &WatchModel, state: &RunState, width: usize, height: usize) -> Vec<Line<'static>> {
    let limit = charted_limit(&state.budget, &state.spent);
    let burn = &model.run.spend;
    let columns = width.saturating_sub(LABEL_WIDTH + 1);
    let rows = height.saturating_sub(3);
    if columns < 8 || rows == 0 {
        return Vec::new();
    }
    // Not the whole budget: on a scale of a thousand iterations the first ten would be invisible.
    let end = f64::from(state.budget.iterations.min(burn.last_iteration().saturating_mul(4).max(10)).max(1));
    let whole = state.budget.of(limit).map(|whole| whole as f64);
    let projected = burn.projected(limit, &state.spent, end).filter(|_| state.status.is_active());
    let spent = state.spent.of(limit) as f64;
    // The limit is the top; without one, the largest projected value.
    let top =
        whole.unwrap_or(0.0).max(spent).max(if whole.is_none() { projected.unwrap_or(0.0) } else { 0.0 }).max(1.0);
    let at = |column: usize| (column as f64 + 1.0) / columns as f64 * end;

    let mut lines = vec![Line::styled(
        truncate(&format!(" {limit}: █ spent  · at this pace  ╌ limit"), width),
        style(model, TextTone::Dim),
    )];
    for row in (0..rows).rev() {
        let side = match row {
            row if row + 1 == rows => format_amount(limit, whole_number(top)),
            0 => "0".to_owned(),
            _ => String::new(),
        };
        let side = side.split(' ').next().unwrap_or_default();
        let mut spans =
            vec![Span::styled(format!("{} ", align_right(side, LABEL_WIDTH - 1)), style(model, TextTone::Dim))];
        for column in 0..columns {
            let iteration = at(column);
            let filled = if iteration <= f64::from(burn.last_iteration()) {
                burn.spent_at(limit, iteration) as f64
            } else {
                0.0
            };
            // A positive amount is always visible.
            let filled = whole_number((filled / top * rows as f64 * 8.0).round()).max(u64::from(filled > 0.0));
            let eighths = filled.saturating_sub(row as u64 * 8).min(8);
            let ahead = projected.is_some() && iteration > f64::from(burn.last_iteration());
            let point = burn.projected(limit, &state.spent, iteration).map(|value| value / top * rows as f64);
            let hits = ahead && point.is_some_and(|point| point >= row as f64 && point < row as f64 + 1.0);
            spans.push(if eighths > 0 {
                let at = usize::try_from(eighths).unwrap_or(0);
                Span::styled(EIGHTHS.get(at).copied().unwrap_or(" "), style(model, TextTone::Accent))
            } else if hits {
                Span::styled("·", style(model, TextTone::Plain))
            } else if row + 1 == rows && whole.is_some() {
                Span::styled("╌", style(model, TextTone::Warn))
            } else {
                Span::raw(" ")
            });
        }
        lines.push(Line::from(spans));
    }
    lines.push(axis(model, columns, end));
    lines.push(Line::styled(
        format!("{}0{}", " ".repeat(LABEL_WIDTH), align_right(&format!("{end:.0}"), columns.saturating_sub(1))),
        style(model, TextTone::Dim),
    ));
    lines
}

/// Draws the axis, with a mark where the profile changed.
fn axis(model: &WatchModel, columns: usize, end: f64) -> Line<'static> {
    let mut cells = vec!["─"; columns];
    let swaps = model.run.iterations.profile_changes();
    for n in &swaps {
        let at = usize::try_from(whole_number(f64::from(*n) / end * columns as f64)).unwrap_or(usize::MAX);
        if let Some(cell) = cells.get_mut(at.saturating_sub(1)) {
            *cell = "▲";
        }
    }
    let words = if swaps.is_empty() { "" } else { "▲ profile" };
    Line::styled(format!("{}{}", align_left(words, LABEL_WIDTH), cells.concat()), style(model, TextTone::Dim))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a float cast saturates")]
fn whole_number(value: f64) -> u64 {
    value as u64
}
