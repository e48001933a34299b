//! What a key means. Which keys there are stands in one table; help and footer are written from it.

use ralph_core::control::Control;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::model::{Choice, Effect, Item, Leave, Mode, Model, Panel};
use super::text;

/// The longest note that can be typed, in bytes.
const LONGEST: usize = 2000;

/// The keys, with a short word for the footer (none: only in the help) and a sentence for the help.
pub(super) const KEYS: &[(&str, &str, &str)] = &[
    ("p", "pause", "pause after the action under way; resume a run that rests"),
    ("r", "rotate", "start the next iteration with a fresh look"),
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

/// Finds out what a key means where the screen stands, and does it.
pub(super) fn press(model: &mut Model, key: KeyEvent) -> Option<Effect> {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    match key.code {
        KeyCode::Char('c') if control => return Some(Effect::Leave(Leave::Interrupted)),
        KeyCode::Char('z') if control => return Some(Effect::Suspend),
        _ => (),
    }
    match std::mem::replace(&mut model.mode, Mode::Look) {
        Mode::Look if control => None,
        Mode::Look => look(model, key.code),
        // Whatever is pressed closes the page.
        Mode::Help => None,
        Mode::Stop => (key.code == KeyCode::Char('y') && !control).then(|| model.ask(Control::Stop)).flatten(),
        Mode::Words { what, text } => words(model, what, text, key.code, control),
        Mode::Choose { what, items, at } => choose(model, what, items, at, key.code),
    }
}

fn look(model: &mut Model, code: KeyCode) -> Option<Effect> {
    model.asked.seen();
    let page = isize::try_from(model.page()).unwrap_or(1);
    match code {
        KeyCode::Char('q') | KeyCode::Esc => return Some(Effect::Leave(Leave::Asked)),
        KeyCode::Char('?') | KeyCode::F(1) => model.mode = Mode::Help,
        KeyCode::Char('p') => return model.pause_or_resume(),
        KeyCode::Char('r') => return model.ask(Control::Rotate { why: None }),
        KeyCode::Char('s') => model.mode = Mode::Stop,
        KeyCode::Char('n') => model.mode = Mode::Words { what: Words::Note, text: String::new() },
        KeyCode::Char('g') => model.mode = Mode::Words { what: Words::Guardrail, text: String::new() },
        KeyCode::Char('d') => return model.ask(Control::Diagnose),
        KeyCode::Char('f') => model.offer_profiles(),
        KeyCode::Char('a') => return model.offer_proposals(),
        KeyCode::Tab => model.alone = Panel::after(model.alone),
        KeyCode::BackTab => model.alone = Panel::before(model.alone),
        KeyCode::Up | KeyCode::Char('k') => model.log.scroll(-1, model.page()),
        KeyCode::Down | KeyCode::Char('j') => model.log.scroll(1, model.page()),
        KeyCode::PageUp => model.log.scroll(1 - page, model.page()),
        KeyCode::PageDown | KeyCode::Char(' ') => model.log.scroll(page - 1, model.page()),
        KeyCode::Home => model.log.scroll(isize::MIN, model.page()),
        KeyCode::End | KeyCode::Char('G') => model.log.follow(),
        _ => (),
    }
    None
}

/// What is being typed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Words {
    Note,
    Guardrail,
}

fn words(model: &mut Model, what: Words, mut typed: String, code: KeyCode, control: bool) -> Option<Effect> {
    match code {
        KeyCode::Esc => return None,
        KeyCode::Enter if typed.trim().is_empty() => return None,
        KeyCode::Enter => {
            let text = typed.trim().to_owned();
            return model.ask(match what {
                Words::Note => Control::Note { text },
                Words::Guardrail => Control::Guardrail { text },
            });
        }
        KeyCode::Backspace => drop(typed.pop()),
        KeyCode::Char('u') if control => typed.clear(),
        KeyCode::Char('w') if control => {
            typed.truncate(typed.trim_end().len());
            typed.truncate(typed.rfind(' ').map_or(0, |at| at + 1));
        }
        KeyCode::Char(c) if !control && typed.len() < LONGEST => typed.push(c),
        _ => (),
    }
    model.mode = Mode::Words { what, text: typed };
    None
}

/// Takes what was pasted. Outside a line that is being typed it means nothing: its letters are not keys.
pub(super) fn paste(model: &mut Model, pasted: &str) {
    if let Mode::Words { text, .. } = &mut model.mode {
        let room = LONGEST.saturating_sub(text.len());
        text.push_str(ralph_core::text::head(&text::line(pasted), room));
    }
}

fn choose(model: &mut Model, what: Choice, items: Vec<Item>, at: usize, code: KeyCode) -> Option<Effect> {
    let last = items.len().saturating_sub(1);
    let at = match code {
        KeyCode::Up | KeyCode::Char('k') => at.saturating_sub(1),
        KeyCode::Down | KeyCode::Char('j') => (at + 1).min(last),
        KeyCode::Char(c @ '1'..='9') => (c as usize - '1' as usize).min(last),
        KeyCode::Enter => return items.into_iter().nth(at).and_then(|item| model.ask(item.control)),
        KeyCode::Esc | KeyCode::Char('q') => return None,
        _ => at,
    };
    model.mode = Mode::Choose { what, items, at };
    None
}
