//! Draws the footer and the overlays: pending controls, answers, questions and the list of keys.

use ralph_core::run::RunStatus;
use ralph_web::view::{PendingControl, progress_text};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Modifier;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType, Clear, Paragraph};

use super::super::keys::{KEY_BINDINGS, TextPrompt};
use super::super::model::{ChoiceItem, ChoiceKind, InputMode, WatchModel};
use super::super::text_layout::{
    align_left, display_width, format_duration, single_line, truncate, truncate_start, wrap,
};
use super::theme::{TextTone, style};

/// Draws the line above the footer: a question, the pending controls, or the last answer.
pub(super) fn message(model: &WatchModel, width: u16) -> Line<'static> {
    let width = usize::from(width);
    match &model.mode {
        InputMode::ConfirmStop => {
            let words = " stop this run for good? its commits are kept. y stops it, any other key does not";
            return Line::styled(truncate(words, width), style(model, TextTone::Warn));
        }
        InputMode::EnterText { what, text } => {
            let name = match what {
                TextPrompt::Note => " note: ",
                TextPrompt::Guardrail => " guardrail: ",
            };
            let typed = truncate_start(text, width.saturating_sub(display_width(name) + 2));
            return Line::from(vec![Span::styled(name, style(model, TextTone::Bold)), Span::raw(format!("{typed}▏"))]);
        }
        InputMode::Browse | InputMode::Help | InputMode::Choose { .. } => (),
    }
    if !model.run.controls.pending().is_empty() {
        let describe = |pending: &PendingControl| {
            format!(
                "{} {}",
                single_line(&progress_text(&pending.control)),
                format_duration(model.elapsed_ms(pending.since))
            )
        };
        let words: Vec<String> = model.run.controls.pending().iter().map(describe).collect();
        return Line::from(vec![
            Span::styled(" … ", style(model, TextTone::Accent)),
            Span::raw(truncate(&words.join(" · "), width.saturating_sub(3))),
        ]);
    }
    let Some(notice) = model.run.controls.notice() else { return Line::default() };
    let (mark, tone) = if notice.good { (" ✓ ", TextTone::Good) } else { (" ✗ ", TextTone::Bad) };
    Line::from(vec![
        Span::styled(mark, style(model, tone)),
        Span::raw(truncate(&single_line(&notice.text), width.saturating_sub(3))),
    ])
}

/// Draws the keys that currently do something, as many as fit; help and quit always.
pub(super) fn footer(model: &WatchModel, width: u16) -> Line<'static> {
    let width = usize::from(width);
    let keys: Vec<(&str, &str)> = match &model.mode {
        InputMode::EnterText { .. } => vec![("Enter", "sends"), ("Esc", "leaves it")],
        InputMode::Choose { .. } => vec![("↑ ↓", "choose"), ("Enter", "takes it"), ("Esc", "leaves it")],
        InputMode::Help => vec![("any key", "closes this")],
        InputMode::ConfirmStop => vec![("y", "stop"), ("any other key", "go on")],
        InputMode::Browse => available_keys(model),
    };
    let ends = if model.mode == InputMode::Browse { 2 } else { 0 };
    let size = |gap: usize| move |(key, word): &(&str, &str)| display_width(key) + display_width(word) + gap;
    // With smaller gaps where that shows more keys.
    let gap = if keys.iter().map(size(3)).sum::<usize>() <= width { 2 } else { 1 };
    let (first, last) = keys.split_at(keys.len().saturating_sub(ends));
    let mut room = width.saturating_sub(last.iter().map(size(gap + 1)).sum());
    let fits = |key: &&(&str, &str)| {
        let size = size(gap + 1)(key);
        let fits = size <= room;
        room = room.saturating_sub(size);
        fits
    };
    let shown = first.iter().take_while(fits).chain(last);
    Line::from(shown.flat_map(|key| key_spans(model, *key, gap)).collect::<Vec<_>>())
}

/// Returns the keys that do something in the run's current state.
fn available_keys(model: &WatchModel) -> Vec<(&'static str, &'static str)> {
    let status = model.run.state.as_ref().map(|state| &state.status);
    let active = status.is_none_or(RunStatus::is_active) && model.live;
    let over = status.is_some_and(RunStatus::is_ended);
    let useful = |key: &str| match key {
        "p" | "r" | "s" | "d" | "f" => !over,
        // Notes and guardrails can be left for a run that may be resumed.
        "n" | "g" => status != Some(&RunStatus::Succeeded),
        "a" => !over && model.has_open_proposals(),
        _ => true,
    };
    let named = |(key, word, _): &(&'static str, &'static str, &'static str)| match *key {
        "p" if !active => ("p", "resume"),
        key => (key, *word),
    };
    KEY_BINDINGS.iter().filter(|(key, word, _)| !word.is_empty() && useful(key)).map(named).collect()
}

fn key_spans(model: &WatchModel, (key, word): (&str, &str), gap: usize) -> [Span<'static>; 3] {
    [
        Span::raw(" "),
        Span::styled(key.to_owned(), style(model, TextTone::Bold).patch(style(model, TextTone::Accent))),
        Span::styled(format!(" {word}{}", " ".repeat(gap - 1)), style(model, TextTone::Dim)),
    ]
}

/// Draws the page with all keys.
pub(super) fn help(model: &WatchModel, frame: &mut Frame<'_>, area: Rect) {
    let keys = KEY_BINDINGS.iter().map(|(key, _, _)| display_width(key)).max().unwrap_or(0);
    let lines: Vec<Line<'static>> = KEY_BINDINGS
        .iter()
        .map(|(key, _, what)| {
            Line::from(vec![
                Span::styled(format!(" {} ", align_left(key, keys)), style(model, TextTone::Bold)),
                Span::raw(format!("{what} ")),
            ])
        })
        .collect();
    popup(model, frame, area, "Keys", lines);
}

/// Draws a list to choose from.
pub(super) fn choice(
    model: &WatchModel,
    frame: &mut Frame<'_>,
    area: Rect,
    what: ChoiceKind,
    items: &[ChoiceItem],
    at: usize,
) {
    let title = match what {
        ChoiceKind::Profile => "Profile of the next iterations",
        ChoiceKind::Proposal => "Apply which proposal?",
    };
    let words = |index: usize, item: &ChoiceItem| format!("{} {}", index + 1, single_line(&item.words));
    let longest =
        items.iter().enumerate().map(|(index, item)| display_width(&words(index, item)) + 4).max().unwrap_or(0);
    let width = longest.max(display_width(title) + 4).min(usize::from(area.width.saturating_sub(2)));
    // The user has to know what is being confirmed: a text that is cut is repeated in full below.
    let whole = match items.get(at) {
        Some(item) if display_width(&words(at, item)) + 4 > width => {
            wrap(&single_line(&item.words), width.saturating_sub(4), 8)
        }
        _ => Vec::new(),
    };
    let height = usize::from(area.height.saturating_sub(4)).saturating_sub(whole.len()).max(1);
    let from = at.saturating_sub(height - 1);
    let one = |(index, item): (usize, &ChoiceItem)| {
        let chosen = index == at;
        let mark = if chosen { "▸" } else { " " };
        let words = align_left(&format!(" {mark} {}", words(index, item)), width);
        let weight = if chosen { Modifier::REVERSED } else { Modifier::empty() };
        Line::styled(words, style(model, TextTone::Plain).add_modifier(weight))
    };
    let mut lines: Vec<Line<'static>> = items.iter().enumerate().skip(from).take(height).map(one).collect();
    lines.extend(whole.into_iter().map(|words| Line::styled(format!("   {words}"), style(model, TextTone::Dim))));
    popup(model, frame, area, title, lines);
}

fn popup(model: &WatchModel, frame: &mut Frame<'_>, area: Rect, title: &str, lines: Vec<Line<'static>>) {
    let wide = lines.iter().map(Line::width).max().unwrap_or(0).max(display_width(title) + 4);
    let width = u16::try_from(wide + 2).unwrap_or(u16::MAX).min(area.width);
    let height = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX).min(area.height.saturating_sub(1));
    let place = Rect::new(area.x + (area.width - width) / 2, area.y + (area.height - 1 - height) / 2, width, height);
    let block = Block::bordered()
        .border_type(BorderType::Rounded)
        .border_style(style(model, TextTone::Accent))
        .title(Span::styled(format!(" {title} "), style(model, TextTone::Bold)));
    let inside = block.inner(place);
    frame.render_widget(Clear, place);
    frame.render_widget(block, place);
    frame.render_widget(Paragraph::new(lines), inside);
}
