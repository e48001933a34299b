//! The budgets as bars, the pace, and the loop score; with room, the burn-down below.

use ralph_core::budget::Limit;
use ralph_core::gutter::GUTTER;
use ralph_core::run::State;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::super::burn::outlook;
use super::super::model::Model;
use super::super::text::{bar, clock, columns, count, cut, left, money, right, span};
use super::chart;
use super::theme::{Tone, style};
use crate::render::spark;

/// Returns the panel: a bar for each budget, the pace, the loop score and the burn-down.
pub(super) fn lines(model: &Model, area: Rect) -> Vec<Line<'static>> {
    let width = usize::from(area.width);
    let Some(state) = &model.state else { return Vec::new() };
    if area.is_empty() {
        return Vec::new();
    }
    let uses: Vec<(Limit, Use)> = shown(state).map(|limit| (limit, Use::of(model, state, limit))).collect();
    let numbers = uses.iter().map(|(_, used)| columns(&used.words)).max().unwrap_or(0);
    let one = |(limit, used): &(Limit, Use)| {
        let percent = used.share.map_or_else(|| "no cap".to_owned(), |share| format!("{:.0} %", share * 100.0));
        used.line(model, &limit.to_string(), 11, &(left(&used.words, numbers) + &right(&percent, 7)), width)
    };
    let mut lines: Vec<Line<'static>> = uses.iter().map(one).collect();
    lines.push(pace(model, state, width));
    lines.push(loop_score(model, state, width));
    let left = usize::from(area.height).saturating_sub(lines.len() + 1);
    if left >= 5 {
        lines.push(Line::default());
        lines.extend(chart::lines(model, state, width, left));
    }
    lines
}

/// Returns one or two lines for a screen without room for a panel.
pub(super) fn strip(model: &Model, area: Rect) -> Vec<Line<'static>> {
    let width = usize::from(area.width);
    let Some(state) = &model.state else { return Vec::new() };
    if area.is_empty() {
        return Vec::new();
    }
    let limits = [Limit::Iterations, Limit::Time, Limit::Cost];
    if width < 60 {
        let words: Vec<String> = limits.iter().map(|limit| Use::of(model, state, *limit).words).collect();
        let first = cut(&format!(" #{}", words.join("  ")), width);
        let boxes = format!(" boxes {}/{} ", state.verified.len(), state.started.boxes.len());
        let mut second = vec![Span::raw(boxes)];
        second.extend(loop_score(model, state, width.saturating_sub(12)).spans);
        return vec![Line::from(first), Line::from(second)];
    }
    let each = width / limits.len();
    let bars = limits.iter().zip(["iter", "time", "cost"]);
    let bars = bars.flat_map(|(limit, name)| {
        let used = Use::of(model, state, *limit);
        used.line(model, name, 5, &used.words, each).spans
    });
    let first = Line::from(bars.collect::<Vec<_>>());
    let mut second = loop_score(model, state, width).spans;
    let used: usize = second.iter().map(Span::width).sum();
    let pace = pace(model, state, width.saturating_sub(used + 2));
    second.push(Span::raw("  "));
    second.extend(pace.spans);
    vec![first, Line::from(second)]
}

/// Tokens are only shown where they count.
fn shown(state: &State) -> impl Iterator<Item = Limit> {
    let tokens = state.budget.tokens.is_some() || state.spent.tokens > 0;
    Limit::ALL.into_iter().filter(move |limit| *limit != Limit::Tokens || tokens)
}

/// What is used of one budget.
struct Use {
    words: String,
    /// Between 0 and 1; `None` without a limit.
    share: Option<f64>,
}

impl Use {
    fn of(model: &Model, state: &State, limit: Limit) -> Self {
        let used = if limit == Limit::Time { model.worked_ms(state) } else { state.spent.of(limit) };
        let whole = state.budget.of(limit);
        let write = |value: u64| match limit {
            Limit::Iterations => value.to_string(),
            Limit::Time => span(value),
            Limit::Cost => money(ralph_core::money::Micros(value)),
            Limit::Tokens => count(value),
        };
        let now = if limit == Limit::Time { clock(used) } else { write(used) };
        Self {
            words: whole.map_or_else(|| now.clone(), |whole| format!("{now}/{}", write(whole))),
            share: whole.map(|whole| if whole == 0 { 1.0 } else { (used as f64 / whole as f64).clamp(0.0, 1.0) }),
        }
    }

    /// Writes name, bar and numbers in exactly the width.
    fn line(&self, model: &Model, name: &str, name_width: usize, numbers: &str, width: usize) -> Line<'static> {
        let room = width.saturating_sub(name_width + columns(numbers) + 3);
        let full = self.share.map_or_else(String::new, |share| bar(share, room));
        let tone = match self.share {
            Some(share) if share >= 0.95 => Tone::Bad,
            Some(share) if share >= 0.8 => Tone::Warn,
            _ => Tone::Accent,
        };
        let empty = if self.share.is_some() { "░" } else { " " };
        let empty = empty.repeat(room.saturating_sub(columns(&full)));
        Line::from(vec![
            Span::raw(left(&format!(" {name}"), name_width + 1)),
            Span::styled(full, style(model, tone)),
            Span::styled(empty, style(model, Tone::Dim)),
            Span::raw(format!(" {numbers} ")),
        ])
    }
}

fn pace(model: &Model, state: &State, width: usize) -> Line<'static> {
    let active = state.status.active();
    let words = outlook(&state.budget, &state.spent, &model.burn).filter(|_| active);
    let tone = if words.as_ref().is_some_and(|words| words.contains(" end")) { Tone::Warn } else { Tone::Dim };
    Line::styled(cut(&format!(" {}", words.unwrap_or_default()), width), style(model, tone))
}

fn loop_score(model: &Model, state: &State, width: usize) -> Line<'static> {
    let Some(score) = state.scores.back().copied() else {
        return Line::styled(cut(" loop score: none yet", width), style(model, Tone::Dim));
    };
    let gutter = score >= GUTTER;
    let room = width.saturating_sub(if gutter { 21 } else { 14 }).min(24);
    let scores: Vec<f64> = state.scores.iter().rev().take(room).rev().copied().collect();
    let (word, tone) = if gutter { (" gutter", Tone::Bad) } else { ("", Tone::Plain) };
    Line::from(vec![
        Span::raw(" loop "),
        Span::styled(format!("{score:.1} "), style(model, tone)),
        Span::styled(spark(&scores), style(model, if gutter { Tone::Bad } else { Tone::Accent })),
        Span::styled(word, style(model, tone)),
    ])
}
