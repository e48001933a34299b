//! Draws the checkboxes by milestone, with what ralph itself found: verified, failed, or not checked yet.

use std::collections::BTreeSet;

use ralph_core::event::PinnedBox;
use ralph_core::run::RunState;
use ralph_web::view::LastProofResult;
use ratatui::layout::Rect;
use ratatui::text::Line;

use super::super::model::WatchModel;
use super::super::text_layout::{single_line, truncate};
use super::theme::{TextTone, style};

/// Returns how many boxes are verified, as text.
pub(super) fn verified_text(model: &WatchModel) -> String {
    let Some(state) = &model.run.state else { return String::new() };
    format!("{} of {} verified", state.verified.len(), state.started.boxes.len())
}

pub(super) fn lines(model: &WatchModel, area: Rect) -> Vec<Line<'static>> {
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    let Some(state) = &model.run.state else { return Vec::new() };
    if height == 0 {
        return Vec::new();
    }
    let mut rows = checkbox_rows(model, state, &BTreeSet::new());
    if rows.len() > height {
        // A complete milestone is folded into its title.
        rows = self::checkbox_rows(model, state, &state.complete_milestones());
    }
    let hidden = if rows.len() > height {
        // Scrolled to the first open box, which is the most interesting.
        let open = rows.iter().position(|row| row.open).unwrap_or(0);
        let from = open.saturating_sub(1).min(rows.len() - height);
        let rest = rows.len() - from;
        rows = rows.into_iter().skip(from).take(if rest > height { height - 1 } else { height }).collect();
        rest.saturating_sub(rows.len())
    } else {
        0
    };
    let mut lines: Vec<Line<'static>> =
        rows.into_iter().map(|row| Line::styled(truncate(&row.text, width), style(model, row.tone))).collect();
    if hidden > 0 {
        lines.push(Line::styled(truncate(&format!(" … {hidden} more"), width), style(model, TextTone::Dim)));
    }
    lines
}

struct CheckboxRow {
    text: String,
    tone: TextTone,
    open: bool,
}

fn checkbox_rows(model: &WatchModel, state: &RunState, folded: &BTreeSet<String>) -> Vec<CheckboxRow> {
    let mut rows = Vec::new();
    let mut before: Option<&str> = None;
    for pinned in &state.started.boxes {
        let milestone = pinned.milestone.as_deref();
        if milestone.is_some() && milestone != before {
            rows.push(milestone_row(state, milestone.unwrap_or_default()));
        }
        before = milestone;
        if !milestone.is_some_and(|milestone| folded.contains(milestone)) {
            rows.push(checkbox_row(model, state, pinned));
        }
    }
    rows
}

fn milestone_row(state: &RunState, milestone: &str) -> CheckboxRow {
    let all = || state.started.boxes.iter().filter(|pinned| pinned.milestone.as_deref() == Some(milestone));
    let done = all().filter(|pinned| state.verified.contains(&pinned.id)).count();
    let word = if done == all().count() { ", complete" } else { "" };
    CheckboxRow {
        text: format!(" {} {done}/{}{word}", single_line(milestone), all().count()),
        tone: TextTone::Bold,
        open: false,
    }
}

fn checkbox_row(model: &WatchModel, state: &RunState, pinned: &PinnedBox) -> CheckboxRow {
    let indent = if pinned.milestone.is_some() { "  " } else { "" };
    let verified = state.verified.contains(&pinned.id);
    let (mark, tone, end) = match model.run.proof_results.get(&pinned.id) {
        _ if verified => ("[✓]", TextTone::Good, String::new()),
        Some(LastProofResult::Failed { code }) => ("[✗]", TextTone::Bad, format!("exit {code}: ")),
        Some(LastProofResult::TimedOut) => ("[✗]", TextTone::Bad, "timed out: ".to_owned()),
        Some(LastProofResult::Passed) | None => ("[ ]", TextTone::Plain, String::new()),
    };
    let text = format!(" {indent}{mark} {} {end}{}", single_line(&pinned.id), single_line(&pinned.text));
    CheckboxRow { text, tone, open: !verified }
}
