//! The checkboxes by milestone, with what ralph itself found: verified, failed, or not checked yet.

use std::collections::BTreeSet;

use ralph_core::event::PinnedBox;
use ralph_core::run::State;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::super::model::{Model, Proved};
use super::super::text::{cut, line};
use super::theme::{Tone, style};

/// Says how many are verified.
pub(super) fn count(model: &Model) -> String {
    let Some(state) = &model.state else { return String::new() };
    format!("{} of {} verified", state.verified.len(), state.started.boxes.len())
}

pub(super) fn lines(model: &Model, area: Rect) -> Vec<Line<'static>> {
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let Some(state) = &model.state else { return Vec::new() };
    if height == 0 {
        return Vec::new();
    }
    let mut rows = rows(model, state, &BTreeSet::new());
    if rows.len() > height {
        // What is done needs no more than its milestone.
        rows = self::rows(model, state, &state.complete_milestones());
    }
    let hidden = if rows.len() > height {
        // The first that is open is the one worth seeing.
        let open = rows.iter().position(|row| row.open).unwrap_or(0);
        let from = open.saturating_sub(1).min(rows.len() - height);
        let rest = rows.len() - from;
        rows = rows.into_iter().skip(from).take(if rest > height { height - 1 } else { height }).collect();
        rest.saturating_sub(rows.len())
    } else {
        0
    };
    let mut lines: Vec<Line<'static>> =
        rows.into_iter().map(|row| Line::styled(cut(&row.text, width), style(model, row.tone))).collect();
    if hidden > 0 {
        lines.push(Line::styled(cut(&format!(" … {hidden} more"), width), style(model, Tone::Dim)));
    }
    lines
}

struct Row {
    text: String,
    tone: Tone,
    open: bool,
}

fn rows(model: &Model, state: &State, folded: &BTreeSet<String>) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut before: Option<&str> = None;
    for pinned in &state.started.boxes {
        let milestone = pinned.milestone.as_deref();
        if milestone.is_some() && milestone != before {
            rows.push(heading(state, milestone.unwrap_or_default()));
        }
        before = milestone;
        if !milestone.is_some_and(|milestone| folded.contains(milestone)) {
            rows.push(one(model, state, pinned));
        }
    }
    rows
}

fn heading(state: &State, milestone: &str) -> Row {
    let all = || state.started.boxes.iter().filter(|pinned| pinned.milestone.as_deref() == Some(milestone));
    let done = all().filter(|pinned| state.verified.contains(&pinned.id)).count();
    let word = if done == all().count() { ", complete" } else { "" };
    Row { text: format!(" {} {done}/{}{word}", line(milestone), all().count()), tone: Tone::Bold, open: false }
}

fn one(model: &Model, state: &State, pinned: &PinnedBox) -> Row {
    let indent = if pinned.milestone.is_some() { "  " } else { "" };
    let verified = state.verified.contains(&pinned.id);
    let (mark, tone, end) = match model.proved.get(&pinned.id) {
        _ if verified => ("[✓]", Tone::Good, String::new()),
        Some(Proved::Failed { code }) => ("[✗]", Tone::Bad, format!("exit {code}: ")),
        Some(Proved::TimedOut) => ("[✗]", Tone::Bad, "timed out: ".to_owned()),
        Some(Proved::Passed) | None => ("[ ]", Tone::Plain, String::new()),
    };
    let text = format!(" {indent}{mark} {} {end}{}", line(&pinned.id), line(&pinned.text));
    Row { text, tone, open: !verified }
}
