//! Reads user stories in JSON: an object with a list of stories, or the bare list.

use serde_json::{Map, Value};

use super::draft::{CLAIMED, DraftItem, TaskDraft, append, code_span, escape_block_start, is_box_id, one_line};
use super::error::PlanImportError;
use super::{MOST_ITEMS, PlanKind, check_command};
use crate::text;

/// The accepted keys of the list of stories.
const STORY_LIST_KEYS: [&str; 8] =
    ["userStories", "user_stories", "stories", "features", "items", "tasks", "requirements", "backlog"];
/// The keys of a one-line title of a story, or of the whole plan.
const TITLE_KEYS: [&str; 7] = ["title", "name", "project", "projectName", "feature", "story", "description"];
/// The keys of acceptance criteria.
const CRITERIA_KEYS: [&str; 5] = ["acceptanceCriteria", "acceptance_criteria", "criteria", "steps", "successCriteria"];
/// The keys whose values are commands and nothing else.
const COMMAND_KEYS: [&str; 9] = [
    "verify",
    "verifyCommands",
    "verify_commands",
    "verification",
    "preCommit",
    "checks",
    "qualityChecks",
    "testCommand",
    "test_command",
];

pub(super) fn read(name: &str, source: &str) -> Result<TaskDraft, PlanImportError> {
    let value: Value = serde_json::from_str(source).map_err(|error| PlanImportError::NotJson {
        name: name.to_owned(),
        why: text::strip_control(&error.to_string()),
    })?;
    let none = || PlanImportError::NoStories { name: name.to_owned() };
    let empty = Map::new();
    let (whole, stories) = match &value {
        Value::Array(stories) => (&empty, stories),
        Value::Object(whole) => {
            let list = STORY_LIST_KEYS.iter().find_map(|list| whole.get(*list).and_then(Value::as_array));
            (whole, list.ok_or_else(none)?)
        }
        _ => return Err(none()),
    };
    if stories.is_empty() {
        return Err(none());
    }
    if stories.len() > MOST_ITEMS {
        let why = format!("it has {} stories, more than {MOST_ITEMS}", stories.len());
        return Err(PlanImportError::NoTask { name: name.to_owned(), why });
    }
    let mut draft = TaskDraft { kind: Some(PlanKind::Stories), ..TaskDraft::default() };
    read_header(whole, &mut draft);
    for (at, story) in stories.iter().enumerate() {
        add_story(story, at + 1, &mut draft);
    }
    Ok(draft)
}

/// Reads the fields that concern all stories.
fn read_header(whole: &Map<String, Value>, draft: &mut TaskDraft) {
    let (titled_by, title) = title(whole).unwrap_or(("", "What the stories say".to_owned()));
    let branch = ["branchName", "branch_name", "branch"].iter().find_map(|key| whole.get(*key).and_then(Value::as_str));
    if let Some(branch) = branch {
        draft.named = branch.rsplit('/').next().map(str::to_owned);
        let branch = one_line(branch);
        draft.remarks.push(format!("the branch `{branch}` is not used: every run creates its own under `ralph/`"));
    }
    draft.body = format!("# {}\n", escape_block_start(&title));
    draft.title = title;
    for (key, value) in whole {
        if STORY_LIST_KEYS.contains(&key.as_str()) && value.is_array() || key == titled_by {
            continue;
        }
        for command in commands_of(key, value) {
            if matches!(key.as_str(), "testCommand" | "test_command") {
                draft.test_command.get_or_insert(command);
            } else if !draft.gates.contains(&command) {
                draft.gates.push(command);
            }
        }
        let words = value_text(value);
        if words.is_empty() {
            continue;
        }
        if matches!(key.as_str(), "description" | "summary" | "goal" | "overview") {
            append(&mut draft.body, format_args!("\n{}\n", escape_block_start(&words)));
        } else {
            append(&mut draft.body, format_args!("\n{}: {}\n", escape_block_start(key), words));
        }
    }
    draft.body.push('\n');
}

fn add_story(story: &Value, number: usize, draft: &mut TaskDraft) {
    let fields = match story {
        Value::Object(fields) => fields.clone(),
        other => Map::from_iter([("title".to_owned(), Value::String(value_text(other)))]),
    };
    let (titled_by, title) = title(&fields).unwrap_or(("", format!("Story {number}")));
    let asked = fields.get("id").map(value_text).unwrap_or_default();
    let id = story_id(&asked, number, &draft.items);
    let claimed = is_claimed(&fields);
    let mut proofs: Vec<String> = Vec::new();
    let mut lines = String::new();
    for (key, value) in &fields {
        if key == titled_by || key == "id" && asked == id || matches!((key.as_str(), value), ("passes", Value::Bool(_)))
        {
            continue;
        }
        for command in commands_of(key, value) {
            if !proofs.contains(&command) {
                proofs.push(command);
            }
        }
        match value {
            Value::Array(list) if CRITERIA_KEYS.contains(&key.as_str()) => {
                for criterion in list.iter().map(value_text).filter(|words| !words.is_empty()) {
                    append(&mut lines, format_args!("  - {}\n", escape_block_start(&criterion)));
                }
            }
            value => {
                let words = value_text(value);
                if words.is_empty() {
                    continue;
                }
                let label = if key == "description" { String::new() } else { format!("{}: ", one_line(key)) };
                append(&mut lines, format_args!("  - {}\n", escape_block_start(&format!("{label}{words}"))));
            }
        }
    }
    let note = if claimed { format!("{CLAIMED} ") } else { String::new() };
    append(&mut draft.body, format_args!("- [ ] {id} {note}{title}\n{lines}"));
    for proof in &proofs {
        append(&mut draft.body, format_args!("  - verify: {}\n", code_span(proof)));
    }
    draft.items.push(DraftItem { id, words: title, claimed, proofs });
}

/// Returns the title and the field that it came from.
fn title(fields: &Map<String, Value>) -> Option<(&'static str, String)> {
    TITLE_KEYS.into_iter().find_map(|key| {
        let title = fields.get(key).and_then(Value::as_str).map(one_line)?;
        // A long description is better shown in full below a short title.
        (!title.is_empty() && (key != "description" || title.len() <= 300)).then_some((key, title))
    })
}

/// Keeps an ID that is valid for a box, or else assigns one by number.
fn story_id(asked: &str, number: usize, others: &[DraftItem]) -> String {
    let taken = |id: &str| others.iter().any(|item| item.id == id);
    let upper = asked.to_ascii_uppercase();
    let usable = [asked, upper.as_str()].into_iter().find(|id| is_box_id(id) && !taken(id));
    // Among one more candidate than there are other items, one is always free.
    let numbers = number..=number + others.len();
    let numbered = || numbers.map(|number| format!("S-{number}")).find(|id| !taken(id)).unwrap_or_default();
    usable.map_or_else(numbered, str::to_owned)
}

fn is_claimed(fields: &Map<String, Value>) -> bool {
    ["passes", "done", "completed", "complete", "status", "state"].iter().any(|key| match fields.get(*key) {
        Some(Value::Bool(yes)) => *yes,
        Some(Value::String(word)) => {
            matches!(
                word.to_ascii_lowercase().as_str(),
                "done" | "complete" | "completed" | "passed" | "passes" | "closed"
            )
        }
        _ => false,
    })
}

/// Returns the check commands that a field names.
fn commands_of(key: &str, value: &Value) -> Vec<String> {
    const MOST: usize = 5;
    let mut found = Vec::new();
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        match value {
            Value::String(text) if COMMAND_KEYS.contains(&key) && check_command::is_check_command(text.trim()) => {
                found.push(text.trim().to_owned());
            }
            Value::String(text) if !check_command::meant_to_fail(text) => {
                found.extend(
                    check_command::commands_in_backticks(text)
                        .chain(check_command::command_in_sentence(text))
                        .map(str::to_owned),
                );
            }
            Value::Array(list) => open.extend(list.iter().rev()),
            Value::Object(fields) => open.extend(fields.values().rev()),
            _ => (),
        }
    }
    found.truncate(MOST);
    found
}

/// Joins all text of a value into one line.
fn value_text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Bool(yes) => yes.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => one_line(text),
        Value::Array(list) => {
            list.iter().map(value_text).filter(|words| !words.is_empty()).collect::<Vec<_>>().join("; ")
        }
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| format!("{}: {}", one_line(key), value_text(value)))
            .collect::<Vec<_>>()
            .join("; "),
    }
}
