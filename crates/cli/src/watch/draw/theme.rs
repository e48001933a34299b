//! Defines one text style for each meaning, such as a warning. Without colour they differ by weight only.

use ratatui::style::{Color, Modifier, Style};

use super::super::model::WatchModel;

/// The meaning of a piece of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextTone {
    Plain,
    Bold,
    Dim,
    Good,
    Bad,
    Warn,
    Accent,
}

pub(super) fn style(model: &WatchModel, tone: TextTone) -> Style {
    let (colour, weight) = match tone {
        TextTone::Plain => (None, Modifier::empty()),
        TextTone::Bold => (None, Modifier::BOLD),
        TextTone::Dim => (None, Modifier::DIM),
        TextTone::Good => (Some(Color::Green), Modifier::empty()),
        TextTone::Bad => (Some(Color::Red), Modifier::empty()),
        TextTone::Warn => (Some(Color::Yellow), Modifier::empty()),
        TextTone::Accent => (Some(Color::Cyan), Modifier::empty()),
    };
    let style = Style::new().add_modifier(weight);
    match colour.filter(|_| model.colour) {
        Some(colour) => style.fg(colour),
        None => style,
    }
}
