//! Parses the text of a model into an [`ActionReply`], or says in one or two sentences what is wrong so that the model
//! can be asked again.
//!
//! Repair is a last resort and never applied to text that is used byte for byte: repairing drops unknown escapes, so a
//! repaired command or file would be a different one. A truncated answer is never completed by guessing.

use serde::Deserialize as _;
use serde_json::error::Category;

use super::extract::{self, ReplyExtraction};
use super::reply::{
    Action, ActionReply, MAX_ACTIONS, MAX_CLAIM, MAX_COMMAND, MAX_LIST, MAX_MESSAGE, MAX_PATH, MAX_REASON, MAX_SUMMARY,
};
use crate::text;

/// The longest text that is parsed, in bytes.
pub const MAX_TEXT: usize = 1 << 20;
/// The longest text that is repaired: repairable replies are short, because they hold no files, patches or commands.
const MAX_REPAIR: usize = 16 * 1024;
/// A reply nests four levels deep; more than this could overflow the repairer's stack.
const MAX_DEPTH: usize = 24;

/// A reply that was parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParsedReply {
    pub reply: ActionReply,
    /// The text was not valid JSON and was repaired; such a reply can only rotate, pause or stop.
    pub repaired: bool,
}

/// Why a text is not a reply, as a message for the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct InvalidReply {
    pub message: String,
}

impl InvalidReply {
    fn new(message: impl Into<String>) -> Self {
        Self { message: message.into() }
    }
}

/// Parses the text of a model as a reply.
pub fn parse(text: &str) -> Result<ParsedReply, InvalidReply> {
    if text.len() > MAX_TEXT {
        return Err(InvalidReply::new(format!(
            "the answer has {} bytes, more than the {MAX_TEXT} allowed: do less in one step",
            text.len()
        )));
    }
    let object = match extract::find_reply_object(text) {
        ReplyExtraction::One(object) => object,
        ReplyExtraction::Cut(rest) => {
            let why =
                serde_json::from_str::<ActionReply>(rest).err().map_or_else(String::new, |err| format!(" ({err})"));
            return Err(InvalidReply::new(format!(
                "the JSON object is never closed{why}: a quote or bracket is missing, or the answer was cut off because it was too long"
            )));
        }
        ReplyExtraction::Several => {
            return Err(InvalidReply::new("the answer holds more than one reply: answer with exactly one JSON object"));
        }
        ReplyExtraction::Broken => {
            return Err(InvalidReply::new(
                "the JSON object ends before the answer does: a quote inside a string is not escaped, or a bracket is closed twice",
            ));
        }
        ReplyExtraction::None => {
            return Err(InvalidReply::new("the answer holds no JSON object: answer with exactly one"));
        }
    };
    let error = match serde_json::from_str::<ActionReply>(object) {
        Ok(reply) => {
            check(&reply)?;
            return Ok(ParsedReply { reply, repaired: false });
        }
        Err(error) => error,
    };
    match error.classify() {
        Category::Data => Err(InvalidReply::new(explain(object, &error))),
        Category::Syntax | Category::Eof | Category::Io => repair(object, &error),
    }
}

fn repair(object: &str, error: &serde_json::Error) -> Result<ParsedReply, InvalidReply> {
    let invalid = || {
        let near = excerpt_near(object, error.line(), error.column());
        InvalidReply::new(format!("the answer is not valid JSON: {error}, near `{near}`"))
    };
    if object.len() > MAX_REPAIR || extract::nesting_depth(object) > MAX_DEPTH {
        return Err(invalid());
    }
    let repaired = jsonrepair_rs::jsonrepair(object).map_err(|_| invalid())?;
    let reply: ActionReply = serde_json::from_str(&repaired).map_err(|_| invalid())?;
    if reply.actions.iter().any(Action::has_verbatim_text) {
        return Err(invalid());
    }
    check(&reply)?;
    Ok(ParsedReply { reply, repaired: true })
}

/// Returns the text around a position, because a model does not count lines.
fn excerpt_near(object: &str, line: usize, column: usize) -> String {
    let line_start: usize = object.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
    let mut start = (line_start + column).saturating_sub(30).min(object.len());
    while !object.is_char_boundary(start) {
        start -= 1;
    }
    text::strip_control(text::head(&object[start..], 60)).replace('\n', "⏎")
}

/// Returns where in well-formed JSON the wrong field is: the parser itself reports no paths.
fn explain(object: &str, error: &serde_json::Error) -> String {
    let place = serde_json::from_str::<serde_json::Value>(object).ok().and_then(|value| {
        let actions = value.get("actions")?.as_array()?;
        actions.iter().enumerate().find_map(|(n, action)| {
            let error = Action::deserialize(action).err()?;
            Some(format!("actions[{n}]: {error}"))
        })
    });
    let message = place.unwrap_or_else(|| error.to_string());
    format!("the answer does not fit the schema: {}", text::strip_control(text::head(&message, 600)))
}

/// Checks the size limits of the schema, which serde does not enforce.
fn check(reply: &ActionReply) -> Result<(), InvalidReply> {
    check_size("summary", &reply.summary, 0, MAX_SUMMARY)?;
    if reply.actions.len() > MAX_ACTIONS {
        let n = reply.actions.len();
        return Err(InvalidReply::new(format!(
            "the reply has {n} actions, more than the {MAX_ACTIONS} allowed in one step"
        )));
    }
    for (n, action) in reply.actions.iter().enumerate() {
        let field = |name: &str| format!("actions[{n}].{name}");
        match action {
            Action::Run { command, cwd, timeout_s: _ } => {
                check_size(&field("command"), command, 1, MAX_COMMAND)?;
                check_size(&field("cwd"), cwd, 1, MAX_PATH)?;
            }
            Action::Patch { path, patch } => {
                check_size(&field("path"), path, 1, MAX_PATH)?;
                check_size(&field("patch"), patch, 1, MAX_TEXT)?;
            }
            Action::Write { path, content: _, append: _, mode: _ } => check_size(&field("path"), path, 1, MAX_PATH)?,
            Action::Commit { message, paths } => {
                check_size(&field("message"), message, 1, MAX_MESSAGE)?;
                check_list(&field("paths"), paths, 1, MAX_PATH)?;
            }
            Action::Rotate { reason }
            | Action::Pause { reason }
            | Action::StopSuccess { reason }
            | Action::StopFailure { reason } => check_size(&field("reason"), reason, 0, MAX_REASON)?,
        }
    }
    check_list("claims.checkboxes_checked", &reply.claims.checkboxes_checked, 0, MAX_CLAIM)?;
    check_list("claims.milestones_completed", &reply.claims.milestones_completed, 0, MAX_CLAIM)
}

fn check_list(field: &str, items: &[String], min: usize, max: usize) -> Result<(), InvalidReply> {
    if items.len() > MAX_LIST {
        return Err(InvalidReply::new(format!("`{field}` has {} entries, more than {MAX_LIST}", items.len())));
    }
    items.iter().try_for_each(|item| check_size(field, item, min, max))
}

fn check_size(field: &str, value: &str, min: usize, max: usize) -> Result<(), InvalidReply> {
    let chars = value.chars().count();
    if chars < min {
        return Err(InvalidReply::new(format!("`{field}` is empty")));
    }
    if chars > max {
        return Err(InvalidReply::new(format!("`{field}` has {chars} characters, more than {max}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
