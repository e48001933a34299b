//! What is said below the panels and over them: pending controls, answers, questions, the keys.

use ralph_core::run::Status;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Modifier;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType, Clear, Paragraph};

use super::super::keys::{KEYS, Words};
use super::super::model::{Choice, Item, Mode, Model};
use super::super::pending::doing;
use super::super::text::{clock, columns, cut, left, line, tail, wrap};
use super::theme::{Tone, style};

/// The line above the footer: a question, what is pending, or the last answer.
pub(super) fn message(model: &Model, width: u16) -> Line<'static> {
    let width = usize::from(width);
    match &model.mode {
        Mode::Stop => {
            let words = " stop this run for good? its commits are kept. y stops it, any other key does not";
            return Line::styled(cut(words, width), style(model, Tone::Warn));
        }
        Mode::Words { what, text } => {
            let name = match what {
                Words::Note => " note: ",
                Words::Guardrail => " guardrail: ",
            };
            let typed = tail(text, width.saturating_sub(columns(name) + 2));
            return Line::from(vec![Span::styled(name, style(model, Tone::Bold)), Span::raw(format!("{typed}▏"))]);
        }
        Mode::Look | Mode::Help | Mode::Choose { .. } => (),
    }
    if !model.asked.open().is_empty() {
        let said = |pending: &super::super::pending::Pending| {
            format!("{} {}", line(&doing(&pending.control)), clock(model.since(pending.since)))
        };
        let words: Vec<String> = model.asked.open().iter().map(said).collect();
        return Line::from(vec![
            Span::styled(" … ", style(model, Tone::Accent)),
            Span::raw(cut(&words.join(" · "), width.saturating_sub(3))),
        ]);
    }
    let Some(notice) = model.asked.notice() else { return Line::default() };
    let (mark, tone) = if notice.good { (" ✓ ", Tone::Good) } else { (" ✗ ", Tone::Bad) };
    Line::from(vec![
        Span::styled(mark, style(model, tone)),
        Span::raw(cut(&line(&notice.text), width.saturating_sub(3))),
    ])
}

/// The keys that make sense now, as many as fit; help and quit always.
pub(super) fn footer(model: &Model, width: u16) -> Line<'static> {
    let width = usize::from(width);
    let keys: Vec<(&str, &str)> = match &model.mode {
        Mode::Words { .. } => vec![("Enter", "sends"), ("Esc", "leaves it")],
        Mode::Choose { .. } => vec![("↑ ↓", "choose"), ("Enter", "takes it"), ("Esc", "leaves it")],
        Mode::Help => vec![("any key", "closes this")],
        Mode::Stop => vec![("y", "stop"), ("any other key", "go on")],
        Mode::Look => looking(model),
    };
    let ends = if model.mode == Mode::Look { 2 } else { 0 };
    let size = |gap: usize| move |(key, word): &(&str, &str)| columns(key) + columns(word) + gap;
    // Tighter where that shows more.
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

/// The keys that do something where the run stands.
fn looking(model: &Model) -> Vec<(&'static str, &'static str)> {
    let status = model.state.as_ref().map(|state| &state.status);
    let active = status.is_none_or(Status::active) && model.driven;
    let over = status.is_some_and(Status::ended);
    let useful = |key: &str| match key {
        "p" | "r" | "s" | "d" | "f" => !over,
        // Words can be left for a run that may be resumed.
        "n" | "g" => status != Some(&Status::Succeeded),
        "a" => !over && model.proposed(),
        _ => true,
    };
    let named = |(key, word, _): &(&'static str, &'static str, &'static str)| match *key {
        "p" if !active => ("p", "resume"),
        key => (key, *word),
    };
    KEYS.iter().filter(|(key, word, _)| !word.is_empty() && useful(key)).map(named).collect()
}

fn key_spans(model: &Model, (key, word): (&str, &str), gap: usize) -> [Span<'static>; 3] {
    [
        Span::raw(" "),
        Span::styled(key.to_owned(), style(model, Tone::Bold).patch(style(model, Tone::Accent))),
        Span::styled(format!(" {word}{}", " ".repeat(gap - 1)), style(model, Tone::Dim)),
    ]
}

/// The page with all keys.
pub(super) fn help(model: &Model, frame: &mut Frame<'_>, area: Rect) {
    let keys = KEYS.iter().map(|(key, _, _)| columns(key)).max().unwrap_or(0);
    let lines: Vec<Line<'static>> = KEYS
        .iter()
        .map(|(key, _, what)| {
            Line::from(vec![
                Span::styled(format!(" {} ", left(key, keys)), style(model, Tone::Bold)),
                Span::raw(format!("{what} ")),
            ])
        })
        .collect();
    popup(model, frame, area, "Keys", lines);
}

/// A list to choose from.
pub(super) fn choice(model: &Model, frame: &mut Frame<'_>, area: Rect, what: Choice, items: &[Item], at: usize) {
    let title = match what {
        Choice::Profile => "Profile of the next iterations",
        Choice::Proposal => "Apply which proposal?",
    };
    let words = |index: usize, item: &Item| format!("{} {}", index + 1, line(&item.words));
    let longest = items.iter().enumerate().map(|(index, item)| columns(&words(index, item)) + 4).max().unwrap_or(0);
    let width = longest.max(columns(title) + 4).min(usize::from(area.width.saturating_sub(2)));
    // Who says yes has to know to what: words that are cut stand below, whole.
    let whole = match items.get(at) {
        Some(item) if columns(&words(at, item)) + 4 > width => wrap(&line(&item.words), width.saturating_sub(4), 8),
        _ => Vec::new(),
    };
    let height = usize::from(area.height.saturating_sub(4)).saturating_sub(whole.len()).max(1);
    let from = at.saturating_sub(height - 1);
    let one = |(index, item): (usize, &Item)| {
        let chosen = index == at;
        let mark = if chosen { "▸" } else { " " };
        let words = left(&format!(" {mark} {}", words(index, item)), width);
        let weight = if chosen { Modifier::REVERSED } else { Modifier::empty() };
        Line::styled(words, style(model, Tone::Plain).add_modifier(weight))
    };
    let mut lines: Vec<Line<'static>> = items.iter().enumerate().skip(from).take(height).map(one).collect();
    lines.extend(whole.into_iter().map(|words| Line::styled(format!("   {words}"), style(model, Tone::Dim))));
    popup(model, frame, area, title, lines);
}

fn popup(model: &Model, frame: &mut Frame<'_>, area: Rect, title: &str, lines: Vec<Line<'static>>) {
    let wide = lines.iter().map(Line::width).max().unwrap_or(0).max(columns(title) + 4);
    let width = u16::try_from(wide + 2).unwrap_or(u16::MAX).min(area.width);
    let height = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX).min(area.height.saturating_sub(1));
    let place = Rect::new(area.x + (area.width - width) / 2, area.y + (area.height - 1 - height) / 2, width, height);
    let block = Block::bordered()
        .border_type(BorderType::Rounded)
        .border_style(style(model, Tone::Accent))
        .title(Span::styled(format!(" {title} "), style(model, Tone::Bold)));
    let inside = block.inner(place);
    frame.render_widget(Clear, place);
    frame.render_widget(block, place);
    frame.render_widget(Paragraph::new(lines), inside);
}
