//! Plans of other tools become tasks: a list of user stories in JSON, or a Markdown page with boxes, task headings or
//! lists.
//!
//! Every item is kept and every word of the source. What the source calls done becomes an open box that says so, because
//! nothing of it was proved here. A command that the source names as a check becomes a proof; all else is covered by
//! `verify_commands`. Nothing here reads a file.

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

/// Largest plan that is read: the task made of it must itself stay below its limit.
pub const MAX_BYTES: usize = 192 << 10;

/// Most items of one plan; a person reviews all of them.
const MOST_ITEMS: usize = 2000;

/// What is imported.
#[derive(Debug, Clone, Copy)]
pub struct PlanSource<'a> {
    /// The path as the person wrote it.
    pub name: &'a str,
    pub text: &'a str,
    /// How the repository is tested, where its files say so; a command in the plan counts more.
    pub test_command: Option<&'a str>,
}

/// Which tool's plan it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlanKind {
    /// `prd.json`: user stories with acceptance criteria.
    Stories,
    /// `fix_plan.md` and its kin: a list by priority.
    FixPlan,
    /// `RALPH_TASK.md`: front matter and success criteria.
    RalphTask,
    /// A page of `docs/plans`: tasks with steps.
    Plan,
}

impl PlanKind {
    /// Names it in a sentence.
    pub fn description(self) -> &'static str {
        match self {
            Self::Stories => "user stories",
            Self::FixPlan => "a fix plan",
            Self::RalphTask => "a RALPH_TASK",
            Self::Plan => "a plan",
        }
    }
}

/// A plan that became a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImportedTask {
    pub kind: PlanKind,
    pub task_id: String,
    /// The text of the task file.
    pub task: String,
    pub test_command: Option<String>,
    /// How many boxes it has, how many of them the source calls done, and how many have a proof of their own.
    pub items: usize,
    pub claimed: usize,
    pub proved: usize,
    /// What could not be carried over, or was decided for the person.
    pub remarks: Vec<String>,
}

/// Makes a task of a plan.
pub fn import(wish: &PlanSource<'_>) -> Result<ImportedTask, PlanImportError> {
    let shown = text::strip_control(text::first_line(wish.name, 200));
    if wish.text.len() > MAX_BYTES {
        return Err(PlanImportError::TooLarge { name: shown, bytes: wish.text.len() });
    }
    let written = wish.text.trim_start_matches('\u{feff}');
    let source = text::strip_control(written);
    let file = shown.rsplit(['/', '\\']).next().unwrap_or(&shown).to_owned();
    let is_json = file.to_ascii_lowercase().ends_with(".json") || source.trim_start().starts_with(['{', '[']);
    let is_page = file.to_ascii_lowercase().ends_with(".md");
    // JSON is read as it was written: a sign that drives a terminal may take the quote after it along when it is taken out.
    let draft = if is_json && !is_page {
        user_stories::read(&shown, written)?
    } else {
        markdown_plan::read(&shown, &file, &source)?
    };
    task_writer::write_task(&shown, &file, &source, wish.test_command, &draft)
}

#[cfg(test)]
mod tests;
