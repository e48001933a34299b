//! Draws the tail of the log.

use ratatui::layout::Rect;
use ratatui::text::{Line, Span};

use super::super::log_panel::LogPanelRow;
use super::super::model::WatchModel;
use super::super::text_layout::{pluralize, truncate};
use super::theme::{TextTone, style};

/// Returns whether the log follows, and how to follow again.
pub(super) fn follow_status(model: &WatchModel, width: u16) -> String {
    let below = model.log.rows_below();
    let words = if model.log.is_following() {
        if model.log.is_truncated() && width >= 60 {
            format!("following · ralph logs {} has all of it", model.id)
        } else {
            "following".to_owned()
        }
    } else if width >= 60 {
        format!("stopped here · {} below · End follows", pluralize(below, "row", "rows"))
    } else {
        format!("{below} below · End")
    };
    truncate(&words, usize::from(width).saturating_sub(9))
}

pub(super) fn lines(model: &WatchModel, area: Rect) -> Vec<Line<'static>> {
    let width = usize::from(area.width);
    if area.is_empty() {
        return Vec::new();
    }
    model.log.view(usize::from(area.height)).map(|row| row_line(model, row, width)).collect()
}

fn row_line(model: &WatchModel, row: &LogPanelRow, width: usize) -> Line<'static> {
    // A narrow screen omits the time first.
    let time = match row.at {
        _ if width < 60 => String::new(),
        Some(at) => at.to_zoned(model.zone.clone()).strftime("%H:%M:%S ").to_string(),
        None => " ".repeat(9),
    };
    let room = width.saturating_sub(time.len() + 1);
    let text = truncate(&row.text, room);
    let trimmed = text.trim_start();
    let tone = match trimmed.chars().next() {
        Some('✓') => TextTone::Good,
        Some('✗') => TextTone::Bad,
        Some('!') => TextTone::Warn,
        _ if trimmed.starts_with("iteration ") && text.len() == trimmed.len() => TextTone::Bold,
        _ => TextTone::Plain,
    };
    let marked = matches!(tone, TextTone::Good | TextTone::Bad | TextTone::Warn);
    let mut spans = vec![Span::raw(" "), Span::styled(time, style(model, TextTone::Dim))];
    if marked {
        // Only the mark is coloured: on a screen full of colour nothing stands out.
        let mark = text.len() - trimmed.len() + trimmed.chars().next().map_or(0, char::len_utf8);
        let (mark, rest) = text.split_at(mark);
        spans.push(Span::styled(mark.to_owned(), style(model, tone)));
        spans.push(Span::raw(rest.to_owned()));
    } else {
        spans.push(Span::styled(text, style(model, tone)));
    }
    Line::from(spans)
}
