//! The burn-down: what was spent after each iteration, where it leads, and the limit above.

use ralph_core::run::State;
use ratatui::text::{Line, Span};

use super::super::burn::{amount, measure};
use super::super::model::Model;
use super::super::text::{cut, left, right};
use super::theme::{Tone, style};

/// Columns for the numbers at the side.
const SIDE: usize = 9;

const EIGHTHS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];

/// Draws the picture in a number of lines, which is at least four.
pub(super) fn lines(model: &Model, state: &State, width: usize, height: usize) -> Vec<Line<'static>> {
    let limit = measure(&state.budget, &state.spent);
    let burn = &model.burn;
    let columns = width.saturating_sub(SIDE + 1);
    let rows = height.saturating_sub(3);
    if columns < 8 || rows == 0 {
        return Vec::new();
    }
    // A budget of a thousand iterations says little about the first ten.
    let end = f64::from(state.budget.iterations.min(burn.last().saturating_mul(4).max(10)).max(1));
    let whole = state.budget.of(limit).map(|whole| whole as f64);
    let projected = burn.projected(limit, &state.spent, end).filter(|_| state.status.active());
    let spent = state.spent.of(limit) as f64;
    // The limit is the top; without one, whatever there will be.
    let top =
        whole.unwrap_or(0.0).max(spent).max(if whole.is_none() { projected.unwrap_or(0.0) } else { 0.0 }).max(1.0);
    let at = |column: usize| (column as f64 + 1.0) / columns as f64 * end;

    let mut lines =
        vec![Line::styled(cut(&format!(" {limit}: █ spent  · at this pace  ╌ limit"), width), style(model, Tone::Dim))];
    for row in (0..rows).rev() {
        let side = match row {
            row if row + 1 == rows => amount(limit, whole_number(top)),
            0 => "0".to_owned(),
            _ => String::new(),
        };
        let side = side.split(' ').next().unwrap_or_default();
        let mut spans = vec![Span::styled(format!("{} ", right(side, SIDE - 1)), style(model, Tone::Dim))];
        for column in 0..columns {
            let iteration = at(column);
            let filled = if iteration <= f64::from(burn.last()) { burn.at(limit, iteration) as f64 } else { 0.0 };
            // Something is never nothing.
            let filled = whole_number((filled / top * rows as f64 * 8.0).round()).max(u64::from(filled > 0.0));
            let eighths = filled.saturating_sub(row as u64 * 8).min(8);
            let ahead = projected.is_some() && iteration > f64::from(burn.last());
            let point = burn.projected(limit, &state.spent, iteration).map(|value| value / top * rows as f64);
            let hits = ahead && point.is_some_and(|point| point >= row as f64 && point < row as f64 + 1.0);
            spans.push(if eighths > 0 {
                let at = usize::try_from(eighths).unwrap_or(0);
                Span::styled(EIGHTHS.get(at).copied().unwrap_or(" "), style(model, Tone::Accent))
            } else if hits {
                Span::styled("·", style(model, Tone::Plain))
            } else if row + 1 == rows && whole.is_some() {
                Span::styled("╌", style(model, Tone::Warn))
            } else {
                Span::raw(" ")
            });
        }
        lines.push(Line::from(spans));
    }
    lines.push(axis(model, columns, end));
    lines.push(Line::styled(
        format!("{}0{}", " ".repeat(SIDE), right(&format!("{end:.0}"), columns.saturating_sub(1))),
        style(model, Tone::Dim),
    ));
    lines
}

/// The line below, with a mark where the profile changed.
fn axis(model: &Model, columns: usize, end: f64) -> Line<'static> {
    let mut cells = vec!["─"; columns];
    let swaps = model.iterations.swaps();
    for n in &swaps {
        let at = usize::try_from(whole_number(f64::from(*n) / end * columns as f64)).unwrap_or(usize::MAX);
        if let Some(cell) = cells.get_mut(at.saturating_sub(1)) {
            *cell = "▲";
        }
    }
    let words = if swaps.is_empty() { "" } else { "▲ profile" };
    Line::styled(format!("{}{}", left(words, SIDE), cells.concat()), style(model, Tone::Dim))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a float cast saturates")]
fn whole_number(value: f64) -> u64 {
    value as u64
}
