//! Draws one row for each iteration, the newest first: number, outcome, duration, cost, loop score.

use ralph_core::event::IterationOutcome;
use ralph_core::gutter::GUTTER_THRESHOLD;
use ralph_web::view::IterationRow;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::super::model::WatchModel;
use super::super::text_layout::{align_left, align_right, format_duration, format_money, pluralize, truncate};
use super::theme::{TextTone, style};

/// The width of time, cost and score; number and outcome have the rest.
const FIXED_COLUMNS_WIDTH: usize = 7 + 8 + 5;

pub(super) fn lines(model: &WatchModel, area: Rect) -> Vec<Line<'static>> {
    let width = usize::from(area.width);
    if area.is_empty() {
        return Vec::new();
    }
    let rows = model.run.iterations.all();
    let number = rows.last().map_or(1, |row| row.n.to_string().len()) + 1;
    let room = width.saturating_sub(FIXED_COLUMNS_WIDTH + number + 1);
    let outcome = align_left("outcome", room);
    let head = format!(
        "{} {outcome}{}{}{}",
        align_right("#", number),
        align_right("time", 7),
        align_right("cost", 8),
        align_right("loop", 5)
    );
    let mut lines = vec![Line::styled(truncate(&head, width), style(model, TextTone::Dim))];
    if rows.is_empty() {
        lines.push(Line::styled("   none yet", style(model, TextTone::Dim)));
    }
    lines.extend(
        rows.iter()
            .rev()
            .take(usize::from(area.height).saturating_sub(1))
            .map(|row| iteration_line(model, row, number, room)),
    );
    lines
}

fn iteration_line(model: &WatchModel, row: &IterationRow, number: usize, room: usize) -> Line<'static> {
    let (mark, word, tone) = outcome_parts(model, row);
    let word = match row.boxes {
        0 => word.to_owned(),
        boxes => format!("+{}", pluralize(usize::try_from(boxes).unwrap_or(usize::MAX), "box", "boxes")),
    };
    let took = match row.ended {
        Some((_, at)) => u64::try_from(at.as_millisecond() - row.began.as_millisecond()).unwrap_or(0),
        None => model.elapsed_ms(row.began),
    };
    let score = row.score.map_or_else(|| "-".to_owned(), |score| format!("{score:.1}"));
    let gutter = row.score.is_some_and(|score| score >= GUTTER_THRESHOLD);
    // The mark is beside the number, so that the colour carries no information of its own.
    let (score, score_tone) = if gutter { (format!("{score}!"), TextTone::Bad) } else { (score, TextTone::Plain) };
    let word = if gutter { format!("{word}, gutter") } else { word };
    Line::from(vec![
        Span::styled(align_right(&row.n.to_string(), number), style(model, TextTone::Bold)),
        Span::raw(" "),
        Span::styled(align_left(&format!("{mark} {word}"), room), style(model, tone)),
        Span::raw(align_right(&format_duration(took), 7)),
        Span::raw(align_right(&format_money(row.cost), 8)),
        Span::styled(align_right(&score, 5), style(model, score_tone)),
    ])
}

fn outcome_parts(model: &WatchModel, row: &IterationRow) -> (&'static str, &'static str, TextTone) {
    let Some((ended, _)) = row.ended else {
        let active = model.run.state.as_ref().is_some_and(|state| state.status.is_active());
        return if active { ("▸", "under way", TextTone::Accent) } else { ("·", "interrupted", TextTone::Warn) };
    };
    match ended {
        IterationOutcome::Progress => ("✓", "progress", TextTone::Good),
        IterationOutcome::NoProgress => ("·", "no progress", TextTone::Warn),
        IterationOutcome::ActionFailed => ("✗", "action failed", TextTone::Bad),
        IterationOutcome::BadOutput => ("✗", "no valid answer", TextTone::Bad),
        IterationOutcome::Protected => ("!", "protected path", TextTone::Bad),
        IterationOutcome::Rotated => ("↻", "fresh session", TextTone::Warn),
        IterationOutcome::Regression => ("✗", "a box broke", TextTone::Bad),
    }
}
