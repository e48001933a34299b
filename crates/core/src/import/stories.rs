//! User stories in JSON: an object with a list of stories, or the bare list.

use serde_json::{Map, Value};

use super::draft::{CLAIMED, Draft, Item, add, code_span, flat, harmless, is_id};
use super::error::Error;
use super::{Kind, MOST_ITEMS, command};
use crate::text;

/// What the list of stories may be called.
const LISTS: [&str; 8] =
    ["userStories", "user_stories", "stories", "features", "items", "tasks", "requirements", "backlog"];
/// What says in one line what a story, or all of it, is about.
const TITLES: [&str; 7] = ["title", "name", "project", "projectName", "feature", "story", "description"];
/// What must be true for a story to be done.
const CRITERIA: [&str; 5] = ["acceptanceCriteria", "acceptance_criteria", "criteria", "steps", "successCriteria"];
/// What holds commands and nothing else.
const COMMANDS: [&str; 9] = [
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

pub(super) fn read(name: &str, source: &str) -> Result<Draft, Error> {
    let value: Value = serde_json::from_str(source)
        .map_err(|error| Error::NotJson { name: name.to_owned(), why: text::plain(&error.to_string()) })?;
    let none = || Error::NoStories { name: name.to_owned() };
    let empty = Map::new();
    let (whole, stories) = match &value {
        Value::Array(stories) => (&empty, stories),
        Value::Object(whole) => {
            let list = LISTS.iter().find_map(|list| whole.get(*list).and_then(Value::as_array));
            (whole, list.ok_or_else(none)?)
        }
        _ => return Err(none()),
    };
    if stories.is_empty() {
        return Err(none());
    }
    if stories.len() > MOST_ITEMS {
        let why = format!("it has {} stories, more than {MOST_ITEMS}", stories.len());
        return Err(Error::NoTask { name: name.to_owned(), why });
    }
    let mut draft = Draft { kind: Some(Kind::Stories), ..Draft::default() };
    head(whole, &mut draft);
    for (at, story) in stories.iter().enumerate() {
        tell(story, at + 1, &mut draft);
    }
    Ok(draft)
}

/// What is said of all stories together.
fn head(whole: &Map<String, Value>, draft: &mut Draft) {
    let (titled_by, title) = title(whole).unwrap_or(("", "What the stories say".to_owned()));
    let branch = ["branchName", "branch_name", "branch"].iter().find_map(|key| whole.get(*key).and_then(Value::as_str));
    if let Some(branch) = branch {
        draft.named = branch.rsplit('/').next().map(str::to_owned);
        let branch = flat(branch);
        draft.remarks.push(format!("the branch `{branch}` is not used: every run makes its own below `ralph/`"));
    }
    draft.body = format!("# {}\n", harmless(&title));
    draft.title = title;
    for (key, value) in whole {
        if LISTS.contains(&key.as_str()) && value.is_array() || key == titled_by {
            continue;
        }
        for command in commands_of(key, value) {
            if matches!(key.as_str(), "testCommand" | "test_command") {
                draft.test_command.get_or_insert(command);
            } else if !draft.gates.contains(&command) {
                draft.gates.push(command);
            }
        }
        let words = words(value);
        if words.is_empty() {
            continue;
        }
        if matches!(key.as_str(), "description" | "summary" | "goal" | "overview") {
            add(&mut draft.body, format_args!("\n{}\n", harmless(&words)));
        } else {
            add(&mut draft.body, format_args!("\n{}: {}\n", harmless(key), words));
        }
    }
    draft.body.push('\n');
}

fn tell(story: &Value, number: usize, draft: &mut Draft) {
    let fields = match story {
        Value::Object(fields) => fields.clone(),
        other => Map::from_iter([("title".to_owned(), Value::String(words(other)))]),
    };
    let (titled_by, title) = title(&fields).unwrap_or(("", format!("Story {number}")));
    let asked = fields.get("id").map(words).unwrap_or_default();
    let id = id(&asked, number, &draft.items);
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
            Value::Array(list) if CRITERIA.contains(&key.as_str()) => {
                for criterion in list.iter().map(words).filter(|words| !words.is_empty()) {
                    add(&mut lines, format_args!("  - {}\n", harmless(&criterion)));
                }
            }
            value => {
                let words = words(value);
                if words.is_empty() {
                    continue;
                }
                let label = if key == "description" { String::new() } else { format!("{}: ", flat(key)) };
                add(&mut lines, format_args!("  - {}\n", harmless(&format!("{label}{words}"))));
            }
        }
    }
    let note = if claimed { format!("{CLAIMED} ") } else { String::new() };
    add(&mut draft.body, format_args!("- [ ] {id} {note}{title}\n{lines}"));
    for proof in &proofs {
        add(&mut draft.body, format_args!("  - verify: {}\n", code_span(proof)));
    }
    draft.items.push(Item { id, words: title, claimed, proofs });
}

/// Returns what names it, and the field that did.
fn title(fields: &Map<String, Value>) -> Option<(&'static str, String)> {
    TITLES.into_iter().find_map(|key| {
        let title = fields.get(key).and_then(Value::as_str).map(flat)?;
        // A long description is better shown in full below a short title.
        (!title.is_empty() && (key != "description" || title.len() <= 300)).then_some((key, title))
    })
}

/// Keeps an ID that a box can have, or gives one by its number.
fn id(asked: &str, number: usize, others: &[Item]) -> String {
    let taken = |id: &str| others.iter().any(|item| item.id == id);
    let upper = asked.to_ascii_uppercase();
    let usable = [asked, upper.as_str()].into_iter().find(|id| is_id(id) && !taken(id));
    // One more than there are others is always free.
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

/// Returns the checks a field names.
fn commands_of(key: &str, value: &Value) -> Vec<String> {
    const MOST: usize = 5;
    let mut found = Vec::new();
    let mut open = vec![value];
    while let Some(value) = open.pop() {
        match value {
            Value::String(text) if COMMANDS.contains(&key) && command::checks(text.trim()) => {
                found.push(text.trim().to_owned());
            }
            Value::String(text) if !command::meant_to_fail(text) => {
                found.extend(command::quoted(text).chain(command::spoken(text)).map(str::to_owned));
            }
            Value::Array(list) => open.extend(list.iter().rev()),
            Value::Object(fields) => open.extend(fields.values().rev()),
            _ => (),
        }
    }
    found.truncate(MOST);
    found
}

/// All words of a value in one line.
fn words(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::Bool(yes) => yes.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => flat(text),
        Value::Array(list) => list.iter().map(words).filter(|words| !words.is_empty()).collect::<Vec<_>>().join("; "),
        Value::Object(fields) => {
            fields.iter().map(|(key, value)| format!("{}: {}", flat(key), words(value))).collect::<Vec<_>>().join("; ")
        }
    }
}
