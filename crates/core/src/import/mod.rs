//! Imports plans of other tools as tasks: a JSON list of user stories, or a Markdown page with boxes, task headings or
//! lists.
//!
//! Every item and every word of the source is kept. An item that the source marks as done becomes an open box with a
//! note, because ralph has not proved it. A command that the source names as a check becomes a proof;
//! `verify_commands` covers everything else. Nothing here reads a file.

mod check_command;
mod draft;
mod error;
mod foreign_front_matter;
mod markdown_page;
mod markdown_plan;
mod task_writer;
mod user_stories;

use serde::Serialize;

use crate::text;

pub use error::PlanImportError;

/// The largest accepted plan: the task made from it must itself stay below the task size limit.
pub const MAX_BYTES: usize = 192 << 10;

/// The maximum number of items of one plan; a person has to review all of them.
const MOST_ITEMS: usize = 2000;

/// The plan to import.
#[derive(Debug, Clone, Copy)]
pub struct PlanSource<'a> {
    /// The path as the user wrote it.
    pub name: &'a str,
    pub text: &'a str,
    /// The repository's test command, if its files reveal one; a command in the plan takes precedence.
    pub test_command: Option<&'a str>,
}

/// The kinds of plan, by the tool that wrote them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlanKind {
    /// `prd.json`: user stories with acceptance criteria.
    Stories,
    /// `fix_plan.md` and similar: a list by priority.
    FixPlan,
    /// `RALPH_TASK.md`: front matter and success criteria.
    RalphTask,
    /// A page of `docs/plans`: tasks with steps.
    Plan,
}

impl PlanKind {
    /// Returns a description for use in a sentence.
    pub fn description(self) -> &'static str {
        match self {
            Self::Stories => "user stories",
            Self::FixPlan => "a fix plan",
            Self::RalphTask => "a RALPH_TASK",
            Self::Plan => "a plan",
        }
    }
}

/// A plan that was imported as a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedTask {
    pub kind: PlanKind,
    pub task_id: String,
    /// The text of the task file.
    pub task: String,
    pub test_command: Option<String>,
    /// The number of boxes, of boxes that the source marks as done, and of boxes with a proof of their own.
    pub items: usize,
    pub claimed: usize,
    pub proved: usize,
    /// What could not be carried over, and decisions made on the user's behalf.
    pub remarks: Vec<String>,
}

/// Converts a plan into a task.
pub fn import(plan: &PlanSource<'_>) -> Result<ImportedTask, PlanImportError> {
    let shown = text::strip_control(text::first_line(plan.name, 200));
    if plan.text.len() > MAX_BYTES {
        return Err(PlanImportError::TooLarge { name: shown, bytes: plan.text.len() });
    }
    let written = plan.text.trim_start_matches('\u{feff}');
    let source = text::strip_control(written);
    let file = shown.rsplit(['/', '\\']).next().unwrap_or(&shown).to_owned();
    let is_json = file.to_ascii_lowercase().ends_with(".json") || source.trim_start().starts_with(['{', '[']);
    let is_page = file.to_ascii_lowercase().ends_with(".md");
    // JSON is parsed unmodified: removing a control character could also remove the quote after it.
    let draft = if is_json && !is_page {
        user_stories::read(&shown, written)?
    } else {
        markdown_plan::read(&shown, &file, &source)?
    };
    task_writer::write_task(&shown, &file, &source, plan.test_command, &draft)
}

#[cfg(test)]
mod tests;
