//! The common form of an imported plan before it is written as a task, whichever format it came from.

use std::fmt::{self, Write as _};

use super::PlanKind;
use crate::text;

/// The contents of a parsed plan.
#[derive(Debug, Default)]
pub(super) struct TaskDraft {
    pub(super) kind: Option<PlanKind>,
    pub(super) title: String,
    /// A name for the task, if the plan has one; otherwise the title is used.
    pub(super) named: Option<String>,
    pub(super) test_command: Option<String>,
    /// Further commands that must succeed, independent of any item.
    pub(super) gates: Vec<String>,
    pub(super) max_iterations: Option<u32>,
    /// Source lines that are written into the front matter as comments.
    pub(super) comments: Vec<String>,
    /// The Markdown of the task, with its title.
    pub(super) body: String,
    pub(super) items: Vec<DraftItem>,
    pub(super) remarks: Vec<String>,
}

/// One item of work.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DraftItem {
    pub(super) id: String,
    /// The description, in one line.
    pub(super) words: String,
    /// Whether the source marks it as done.
    pub(super) claimed: bool,
    pub(super) proofs: Vec<String>,
}

/// The note written beside an item that the source marks as done.
pub(super) const CLAIMED: &str = "(claimed done)";

/// Returns whether a word has the form of a box ID.
pub(super) fn is_box_id(word: &str) -> bool {
    let numbers = |text: &str, least: usize| {
        text.split('.').count() >= least
            && text.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
    };
    if word.len() > 40 {
        return false;
    }
    match word.split_once('-') {
        Some((letters, rest)) => {
            (1..=10).contains(&letters.len()) && letters.bytes().all(|b| b.is_ascii_uppercase()) && numbers(rest, 1)
        }
        None => {
            let letters = word.bytes().take_while(u8::is_ascii_alphabetic).count();
            letters <= 4 && numbers(word.get(letters..).unwrap_or_default(), 2)
        }
    }
}

/// Writes a command as a code span, whatever characters it contains.
pub(super) fn code_span(command: &str) -> String {
    let longest = command.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let ticks = "`".repeat(longest + 1);
    let pad = if command.starts_with('`') || command.ends_with('`') { " " } else { "" };
    format!("{ticks}{pad}{command}{pad}{ticks}")
}

/// Appends formatted text.
pub(super) fn append(out: &mut String, text: fmt::Arguments<'_>) {
    out.write_fmt(text).expect("writing to a String cannot fail");
}

/// Joins any text into one line without terminal control characters.
pub(super) fn one_line(text: &str) -> String {
    text::strip_control(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Joins text into one line that starts neither a Markdown block nor a checkbox.
pub(super) fn escape_block_start(text: &str) -> String {
    let line = one_line(text);
    let digits = line.bytes().take_while(u8::is_ascii_digit).count();
    if digits > 0 && line.get(digits..).is_some_and(|rest| rest.starts_with(['.', ')'])) {
        let (number, rest) = line.split_at(digits);
        return format!("{number}\\{rest}");
    }
    // A backtick opens a code span far more often than a fence, which needs three.
    if line.starts_with(['#', '>', '-', '+', '*', '=', '|', '~', '<', '[', '_']) || line.starts_with("```") {
        return format!("\\{line}");
    }
    line
}
