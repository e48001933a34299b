//! The part that never scrolls away: the task, where it stands and why, its branch, pull request and profile.

use jiff::Timestamp;
use ralph_core::event::Reason;
use ralph_core::run::{State, Status};
use ralph_web::view;
use ratatui::text::{Line, Span};

use super::super::model::Model;
use super::super::text::{clock, columns, cut, left, line, wrap};
use super::theme::{Tone, style};

/// Returns the lines of the header; there are more of them when there is more to say.
pub(in super::super) fn lines(model: &Model, width: u16) -> Vec<Line<'static>> {
    let width = usize::from(width);
    let Some(state) = &model.state else {
        let words = match &model.unreadable {
            Some(why) => line(why),
            None if model.gone => "the folder of the run is gone".to_owned(),
            None => "reading what happened so far".to_owned(),
        };
        return vec![
            title(model, "ralph watch", &model.id, Tone::Plain, width),
            Line::from(cut(&format!(" {words}"), width)),
        ];
    };
    let (mark, word, tone) = standing(state, model.driven);
    let standing = format!("{mark} {word} {}", clock(model.worked_ms(state)));
    let mut lines = vec![title(model, &line(&state.started.title), &standing, tone, width)];
    let now = now(model, state, width);
    // On a small screen the next step is worth more than where the work comes from.
    if width >= 60 || now.len() < 2 {
        lines.push(Line::styled(cut(&format!(" {}", origin(state, width)), width), style(model, Tone::Dim)));
    }
    lines.extend(now);
    lines
}

fn title(model: &Model, title: &str, standing: &str, tone: Tone, width: usize) -> Line<'static> {
    let standing = cut(standing, width.saturating_sub(2));
    let room = width.saturating_sub(columns(&standing) + 3);
    Line::from(vec![
        Span::styled(left(&format!(" {title}"), room + 1), style(model, Tone::Bold)),
        Span::raw(" "),
        Span::styled(standing, style(model, tone).patch(style(model, Tone::Bold))),
    ])
}

/// Returns mark, word and tone of where a run stands.
fn standing(state: &State, driven: bool) -> (&'static str, &'static str, Tone) {
    let word = view::word(state, driven);
    let (mark, tone) = match &state.status {
        Status::Preparing | Status::Running if !driven => ("✗", Tone::Bad),
        Status::Queued | Status::Preparing => ("◌", Tone::Accent),
        Status::Running => ("●", Tone::Accent),
        Status::Paused { .. } => ("‖", Tone::Warn),
        Status::Succeeded => ("✓", Tone::Good),
        Status::Failed { .. } => ("✗", Tone::Bad),
        Status::Stopped { .. } => ("■", Tone::Warn),
    };
    (mark, word, tone)
}

/// Profile, pull request, branch and run: the short ones first, because the end may be cut.
fn origin(state: &State, width: usize) -> String {
    let pull_request = match &state.pull_request {
        None => "no pull request yet".to_owned(),
        Some(pr) if width >= 110 && pr.url.starts_with("http") => format!("pull request {}", line(&pr.url)),
        Some(pr) => format!("pull request #{}", pr.number),
    };
    let profile = line(&state.profile);
    format!("{profile} · {pull_request} · {} · run {}", line(&state.started.branch), line(state.id()))
}

/// What it is at, or why it rests and what to do about that.
fn now(model: &Model, state: &State, width: usize) -> Vec<Line<'static>> {
    let told = |mark: &str, words: &str, tone: Tone| {
        let indent = columns(mark) + 2;
        let lines = wrap(&line(words), width.saturating_sub(indent), 2);
        let one = |(at, words): (usize, String)| {
            let mark = if at == 0 { format!(" {mark} ") } else { " ".repeat(indent) };
            Line::from(vec![Span::styled(mark, style(model, tone)), Span::raw(words)])
        };
        lines.into_iter().enumerate().map(one).collect::<Vec<_>>()
    };
    let with_next = |mark: &str, why: &str, tone: Tone, next: &str| {
        [told(mark, why, tone), told("next:", next, Tone::Bold)].concat()
    };
    if let Some(why) = &model.unreadable {
        return with_next("✗", why, Tone::Bad, &format!("ralph logs {}", state.id()));
    }
    if model.gone {
        let why = "the folder of the run is gone; this is the last that was known of it";
        return with_next("✗", why, Tone::Bad, "ralph ls");
    }
    if !model.caught_up {
        return told("…", &format!("reading what happened so far: {} events", model.read), Tone::Dim);
    }
    if let Some((why, next)) = view::rest(state, model.driven) {
        let crashed = state.status.active();
        let why = match &state.status {
            Status::Paused { reason: Reason::Quota { until }, .. } => quota(model, *until),
            _ if crashed => format!("nobody drives this run: {why}"),
            _ => why,
        };
        let tone = if crashed || matches!(state.status, Status::Failed { .. }) { Tone::Bad } else { Tone::Warn };
        return with_next("why:", &why, tone, &next);
    }
    if state.status == Status::Succeeded {
        let next = model.next.clone().unwrap_or_else(|| format!("ralph show {}", state.id()));
        return with_next("✓", "every box was proved again on the pushed commit", Tone::Good, &next);
    }
    match &model.doing {
        Some((what, since)) => {
            let passed = clock(model.since(*since));
            let what = cut(&line(what), width.saturating_sub(columns(&passed) + 4));
            let what = Span::raw(format!("{what} "));
            let mark = Span::styled(" ▸ ", style(model, Tone::Accent));
            vec![Line::from(vec![mark, what, Span::styled(passed, style(model, Tone::Dim))])]
        }
        None => told("▸", "working", Tone::Accent),
    }
}

/// The hour as the reader's clock shows it, and how long that is.
fn quota(model: &Model, until: Timestamp) -> String {
    let hour = until.to_zoned(model.zone.clone()).strftime("%a %H:%M").to_string();
    match until.as_millisecond() - model.now.as_millisecond() {
        left @ 1.. => format!("quota until {hour}, in {}", clock(u64::try_from(left).unwrap_or(0))),
        _ => format!("quota until {hour}, which is over"),
    }
}
