//! Styles by what they mean. Without colour they differ by weight only.

use ratatui::style::{Color, Modifier, Style};

use super::super::model::Model;

/// What a piece of text is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Bold,
    Dim,
    Good,
    Bad,
    Warn,
    Accent,
}

pub(super) fn style(model: &Model, tone: Tone) -> Style {
    let (colour, weight) = match tone {
        Tone::Plain => (None, Modifier::empty()),
        Tone::Bold => (None, Modifier::BOLD),
        Tone::Dim => (None, Modifier::DIM),
        Tone::Good => (Some(Color::Green), Modifier::empty()),
        Tone::Bad => (Some(Color::Red), Modifier::empty()),
        Tone::Warn => (Some(Color::Yellow), Modifier::empty()),
        Tone::Accent => (Some(Color::Cyan), Modifier::empty()),
    };
    let style = Style::new().add_modifier(weight);
    match colour.filter(|_| model.colour) {
        Some(colour) => style.fg(colour),
        None => style,
    }
}
