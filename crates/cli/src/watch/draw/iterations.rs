//! One row for each iteration, the newest first: number, outcome, duration, cost, loop score.

use ralph_core::event::Ended;
use ralph_core::gutter::GUTTER;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::super::iterations::Row;
use super::super::model::Model;
use super::super::text::{clock, cut, left, money, right, several};
use super::theme::{Tone, style};

/// Time, cost and score take this much; number and outcome have the rest.
const FIXED: usize = 7 + 8 + 5;

pub(super) fn lines(model: &Model, area: Rect) -> Vec<Line<'static>> {
    let width = usize::from(area.width);
    if area.is_empty() {
        return Vec::new();
    }
    let rows = model.iterations.all();
    let number = rows.last().map_or(1, |row| row.n.to_string().len()) + 1;
    let room = width.saturating_sub(FIXED + number + 1);
    let outcome = left("outcome", room);
    let head = format!("{} {outcome}{}{}{}", right("#", number), right("time", 7), right("cost", 8), right("loop", 5));
    let mut lines = vec![Line::styled(cut(&head, width), style(model, Tone::Dim))];
    if rows.is_empty() {
        lines.push(Line::styled("   none yet", style(model, Tone::Dim)));
    }
    lines.extend(
        rows.iter().rev().take(usize::from(area.height).saturating_sub(1)).map(|row| one(model, row, number, room)),
    );
    lines
}

fn one(model: &Model, row: &Row, number: usize, room: usize) -> Line<'static> {
    let (mark, word, tone) = outcome(model, row);
    let word = match row.boxes {
        0 => word.to_owned(),
        boxes => format!("+{}", several(usize::try_from(boxes).unwrap_or(usize::MAX), "box", "boxes")),
    };
    let took = match row.ended {
        Some((_, at)) => u64::try_from(at.as_millisecond() - row.began.as_millisecond()).unwrap_or(0),
        None => model.since(row.began),
    };
    let score = row.score.map_or_else(|| "-".to_owned(), |score| format!("{score:.1}"));
    let gutter = row.score.is_some_and(|score| score >= GUTTER);
    // The mark stands beside the number, so that the colour says nothing new.
    let (score, score_tone) = if gutter { (format!("{score}!"), Tone::Bad) } else { (score, Tone::Plain) };
    let word = if gutter { format!("{word}, gutter") } else { word };
    Line::from(vec![
        Span::styled(right(&row.n.to_string(), number), style(model, Tone::Bold)),
        Span::raw(" "),
        Span::styled(left(&format!("{mark} {word}"), room), style(model, tone)),
        Span::raw(right(&clock(took), 7)),
        Span::raw(right(&money(row.cost), 8)),
        Span::styled(right(&score, 5), style(model, score_tone)),
    ])
}

fn outcome(model: &Model, row: &Row) -> (&'static str, &'static str, Tone) {
    let Some((ended, _)) = row.ended else {
        let active = model.state.as_ref().is_some_and(|state| state.status.active());
        return if active { ("▸", "under way", Tone::Accent) } else { ("·", "interrupted", Tone::Warn) };
    };
    match ended {
        Ended::Progress => ("✓", "progress", Tone::Good),
        Ended::NoProgress => ("·", "no progress", Tone::Warn),
        Ended::ActionFailed => ("✗", "action failed", Tone::Bad),
        Ended::BadOutput => ("✗", "no valid answer", Tone::Bad),
        Ended::Protected => ("!", "protected path", Tone::Bad),
        Ended::Rotated => ("↻", "fresh session", Tone::Warn),
    }
}
