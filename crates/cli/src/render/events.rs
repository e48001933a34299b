//! Formats one event as one coloured line of a terminal.

use ralph_core::event::EventLine;
use ralph_core::run::RunState;
use ralph_web::view::{EventSpan, EventTone, event_text};

use crate::terminal_output::{BOLD, DIM, GREEN, RED, YELLOW, paint};

/// Returns the line of an event, or `None` for events that only matter to programs.
pub(crate) fn event_line(line: &EventLine, state: Option<&RunState>) -> Option<String> {
    let text: String = event_text(&line.event, state)?.spans().iter().map(paint_span).collect();
    let time = line.at.to_zoned(jiff::tz::TimeZone::system()).strftime("%H:%M:%S").to_string();
    Some(format!("{} {text}", paint(DIM, &time)))
}

fn paint_span(span: &EventSpan) -> String {
    let style = match span.tone {
        EventTone::Plain => return span.text.clone(),
        EventTone::Strong => BOLD,
        EventTone::Dim => DIM,
        EventTone::Good => GREEN,
        EventTone::Warning => YELLOW,
        EventTone::Bad => RED,
    };
    paint(style, &span.text)
}
