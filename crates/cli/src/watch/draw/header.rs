//! Draws the header, which is always visible: the task, its state and why, its branch, pull request and profile.

use jiff::Timestamp;
use ralph_core::event::RunStopReason;
use ralph_core::run::{RunState, RunStatus};
use ralph_web::view;
use ratatui::text::{Line, Span};

use super::super::model::WatchModel;
use super::super::text_layout::{align_left, display_width, format_duration, single_line, truncate, wrap};
use super::theme::{TextTone, style};

/// Returns the lines of the header; there are more of them when there is more to say.
pub(in super::super) fn lines(model: &WatchModel, width: u16) -> Vec<Line<'static>> {
    let width = usize::from(width);
    let Some(state) = &model.run.state else {
        let words = match &model.unreadable {
            Some(why) => single_line(why),
            None if model.folder_gone => "the folder of the run is gone".to_owned(),
            None => "reading what happened so far".to_owned(),
        };
        return vec![
            title_line(model, "ralph watch", &model.id, TextTone::Plain, width),
            Line::from(truncate(&format!(" {words}"), width)),
        ];
    };
    let (mark, word, tone) = status_parts(state, model.live);
    let standing = format!("{mark} {word} {}", format_duration(model.worked_ms(state)));
    let mut lines = vec![title_line(model, &single_line(&state.started.title), &standing, tone, width)];
    let now = activity_lines(model, state, width);
    // On a small screen the next step is more important than the origin.
    if width >= 60 || now.len() < 2 {
        lines.push(Line::styled(
            truncate(&format!(" {}", origin_text(state, width)), width),
            style(model, TextTone::Dim),
        ));
    }
    lines.extend(now);
    lines
}

fn title_line(model: &WatchModel, title: &str, standing: &str, tone: TextTone, width: usize) -> Line<'static> {
    let standing = truncate(standing, width.saturating_sub(2));
    let room = width.saturating_sub(display_width(&standing) + 3);
    Line::from(vec![
        Span::styled(align_left(&format!(" {title}"), room + 1), style(model, TextTone::Bold)),
        Span::raw(" "),
        Span::styled(standing, style(model, tone).patch(style(model, TextTone::Bold))),
    ])
}

/// Returns mark, word and tone of a run's state.
fn status_parts(state: &RunState, driven: bool) -> (&'static str, &'static str, TextTone) {
    let word = view::status_word(&state.status, driven);
    let (mark, tone) = match &state.status {
        RunStatus::Preparing | RunStatus::Running if !driven => ("✗", TextTone::Bad),
        RunStatus::Queued | RunStatus::Preparing => ("◌", TextTone::Accent),
        RunStatus::Running => ("●", TextTone::Accent),
        RunStatus::Paused { .. } => ("‖", TextTone::Warn),
        RunStatus::Succeeded => ("✓", TextTone::Good),
        RunStatus::Failed { .. } => ("✗", TextTone::Bad),
        RunStatus::Stopped { .. } => ("■", TextTone::Warn),
    };
    (mark, word, tone)
}

/// Returns profile, pull request, branch and run: the short ones first, because the end may be cut.
fn origin_text(state: &RunState, width: usize) -> String {
    let pull_request = match &state.pull_request {
        None => "no pull request yet".to_owned(),
        Some(pr) if width >= 110 && pr.url.starts_with("http") => format!("pull request {}", single_line(&pr.url)),
        Some(pr) => format!("pull request #{}", pr.number),
    };
    let profile = single_line(&state.profile);
    format!("{profile} · {pull_request} · {} · run {}", single_line(&state.started.branch), single_line(state.id()))
}

/// Returns the current activity, or why the run rests and what to do about it.
fn activity_lines(model: &WatchModel, state: &RunState, width: usize) -> Vec<Line<'static>> {
    let notice = |mark: &str, words: &str, tone: TextTone| {
        let indent = display_width(mark) + 2;
        let lines = wrap(&single_line(words), width.saturating_sub(indent), 2);
        let one = |(at, words): (usize, String)| {
            let mark = if at == 0 { format!(" {mark} ") } else { " ".repeat(indent) };
            Line::from(vec![Span::styled(mark, style(model, tone)), Span::raw(words)])
        };
        lines.into_iter().enumerate().map(one).collect::<Vec<_>>()
    };
    let with_next = |mark: &str, why: &str, tone: TextTone, next: &str| {
        [notice(mark, why, tone), notice("next:", next, TextTone::Bold)].concat()
    };
    if let Some(why) = &model.unreadable {
        return with_next("✗", why, TextTone::Bad, &format!("ralph logs {}", state.id()));
    }
    if model.folder_gone {
        let why = "the folder of the run is gone; this is the last that was known of it";
        return with_next("✗", why, TextTone::Bad, "ralph ls");
    }
    if !model.caught_up {
        return notice("…", &format!("reading what happened so far: {} events", model.run.events_read), TextTone::Dim);
    }
    if let Some((why, next)) = view::rest_reason(&state.status, state.id(), model.live) {
        let crashed = state.status.is_active();
        let why = match &state.status {
            RunStatus::Paused { reason: RunStopReason::Quota { until }, .. } => quota_text(model, *until),
            _ if crashed => format!("no process works on this run: {why}"),
            _ => why,
        };
        let tone =
            if crashed || matches!(state.status, RunStatus::Failed { .. }) { TextTone::Bad } else { TextTone::Warn };
        return with_next("why:", &why, tone, &next);
    }
    if state.status == RunStatus::Succeeded {
        let next = model.run.next.clone().unwrap_or_else(|| format!("ralph show {}", state.id()));
        return with_next("✓", "every box was proved again on the pushed commit", TextTone::Good, &next);
    }
    match &model.run.activity {
        Some(activity) => {
            let passed = format_duration(model.elapsed_ms(activity.since));
            let what = truncate(&single_line(&activity.text), width.saturating_sub(display_width(&passed) + 4));
            let what = Span::raw(format!("{what} "));
            let mark = Span::styled(" ▸ ", style(model, TextTone::Accent));
            vec![Line::from(vec![mark, what, Span::styled(passed, style(model, TextTone::Dim))])]
        }
        None => notice("▸", "working", TextTone::Accent),
    }
}

/// Returns when the quota resets, in the user's time zone, and how long that takes.
fn quota_text(model: &WatchModel, until: Timestamp) -> String {
    let hour = until.to_zoned(model.zone.clone()).strftime("%a %H:%M").to_string();
    match until.as_millisecond() - model.now.as_millisecond() {
        left @ 1.. => format!("quota until {hour}, in {}", format_duration(u64::try_from(left).unwrap_or(0))),
        _ => format!("quota until {hour}, which is over"),
    }
}
