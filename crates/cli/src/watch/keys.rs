//! Maps keys to what they do. All keys are in one table, from which the help and the footer are written.

use ralph_core::control_request::Control;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::model::{ChoiceItem, ChoiceKind, InputMode, Panel, WatchEffect, WatchExit, WatchModel};
use super::text_layout;

/// The longest note that can be typed, in bytes.
const MAX_NOTE_BYTES: usize = 2000;

/// The keys, with a short word for the footer (empty: only in the help) and a sentence for the help.
pub(super) const KEY_BINDINGS: &[(&str, &str, &str)] = &[
    ("p", "pause", "pause after the action under way; resume a run that rests"),
    ("r", "rotate", "start the next iteration with a fresh session"),
    ("s", "stop", "stop for good and keep the commits; asks once"),
    ("n", "note", "leave a note for the model"),
    ("g", "guard", "put up a sign the model sees in every iteration"),
    ("d", "diagnose", "ask for a diagnosis"),
    ("f", "profile", "choose the profile of the next iterations"),
    ("a", "apply", "apply what a diagnosis proposes"),
    ("Tab", "", "one panel on the whole screen, then the next, then all"),
    ("↑ ↓ PgUp PgDn", "", "scroll the log; this pauses following"),
    ("End", "", "follow the log again"),
    ("?", "help", "this page"),
    ("q", "quit", "leave; the run goes on"),
];

/// Handles a key according to the current input mode.
pub(super) fn handle_key(model: &mut WatchModel, key: KeyEvent) -> Option<WatchEffect> {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('c') if control => return Some(WatchEffect::Exit(WatchExit::Interrupted)),
        KeyCode::Char('z') if control => return Some(WatchEffect::Suspend),
        _ => (),
    }
    match std::mem::replace(&mut model.mode, InputMode::Browse) {
        InputMode::Browse if control => None,
        InputMode::Browse => handle_browse_key(model, key.code),
        // Any key closes the page.
        InputMode::Help => None,
        InputMode::ConfirmStop => {
            (key.code == KeyCode::Char('y') && !control).then(|| model.request_control(Control::Stop)).flatten()
        }
        InputMode::EnterText { what, text } => handle_text_key(model, what, text, key.code, control),
        InputMode::Choose { what, items, at } => handle_choice_key(model, what, items, at, key.code),
    }
}

fn handle_browse_key(model: &mut WatchModel, code: KeyCode) -> Option<WatchEffect> {
    model.run.controls.dismiss_notice();
    let page = isize::try_from(model.log_page_rows()).unwrap_or(1);
    match code {
        KeyCode::Char('q') | KeyCode::Esc => return Some(WatchEffect::Exit(WatchExit::Requested)),
        KeyCode::Char('?') | KeyCode::F(1) => model.mode = InputMode::Help,
        KeyCode::Char('p') => return model.pause_or_resume(),
        KeyCode::Char('r') => return model.request_control(Control::Rotate { why: None }),
        KeyCode::Char('s') => model.mode = InputMode::ConfirmStop,
        KeyCode::Char('n') => model.mode = InputMode::EnterText { what: TextPrompt::Note, text: String::new() },
        KeyCode::Char('g') => model.mode = InputMode::EnterText { what: TextPrompt::Guardrail, text: String::new() },
        KeyCode::Char('d') => return model.request_control(Control::Diagnose),
        KeyCode::Char('f') => model.offer_profiles(),
        KeyCode::Char('a') => return model.offer_proposals(),
        KeyCode::Tab => model.maximized = Panel::after(model.maximized),
        KeyCode::BackTab => model.maximized = Panel::before(model.maximized),
        KeyCode::Up | KeyCode::Char('k') => model.log.scroll(-1, model.log_page_rows()),
        KeyCode::Down | KeyCode::Char('j') => model.log.scroll(1, model.log_page_rows()),
        KeyCode::PageUp => model.log.scroll(1 - page, model.log_page_rows()),
        KeyCode::PageDown | KeyCode::Char(' ') => model.log.scroll(page - 1, model.log_page_rows()),
        KeyCode::Home => model.log.scroll(isize::MIN, model.log_page_rows()),
        KeyCode::End | KeyCode::Char('G') => model.log.follow(),
        _ => (),
    }
    None
}

/// What is being typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TextPrompt {
    Note,
    Guardrail,
}

fn handle_text_key(
    model: &mut WatchModel,
    what: TextPrompt,
    mut typed: String,
    code: KeyCode,
    control: bool,
) -> Option<WatchEffect> {
    match code {
        KeyCode::Esc => return None,
        KeyCode::Enter if typed.trim().is_empty() => return None,
        KeyCode::Enter => {
            let text = typed.trim().to_owned();
            return model.request_control(match what {
                TextPrompt::Note => Control::Note { text },
                TextPrompt::Guardrail => Control::Guardrail { text },
            });
        }
        KeyCode::Backspace => drop(typed.pop()),
        KeyCode::Char('u') if control => typed.clear(),
        KeyCode::Char('w') if control => {
            typed.truncate(typed.trim_end().len());
            typed.truncate(typed.rfind(' ').map_or(0, |at| at + 1));
        }
        KeyCode::Char(c) if !control && typed.len() < MAX_NOTE_BYTES => typed.push(c),
        _ => (),
    }
    model.mode = InputMode::EnterText { what, text: typed };
    None
}

/// Handles pasted text. It is ignored unless a line is being typed: pasted letters are not key presses.
pub(super) fn handle_paste(model: &mut WatchModel, pasted: &str) {
    if let InputMode::EnterText { text, .. } = &mut model.mode {
        let room = MAX_NOTE_BYTES.saturating_sub(text.len());
        text.push_str(ralph_core::text::head(&text_layout::single_line(pasted), room));
    }
}

fn handle_choice_key(
    model: &mut WatchModel,
    what: ChoiceKind,
    items: Vec<ChoiceItem>,
    at: usize,
    code: KeyCode,
) -> Option<WatchEffect> {
    let last = items.len().saturating_sub(1);
    let at = match code {
        KeyCode::Up | KeyCode::Char('k') => at.saturating_sub(1),
        KeyCode::Down | KeyCode::Char('j') => (at + 1).min(last),
        KeyCode::Char(c @ '1'..='9') => (c as usize - '1' as usize).min(last),
        KeyCode::Enter => return items.into_iter().nth(at).and_then(|item| model.request_control(item.control)),
        KeyCode::Esc | KeyCode::Char('q') => return None,
        _ => at,
    };
    model.mode = InputMode::Choose { what, items, at };
    None
}
