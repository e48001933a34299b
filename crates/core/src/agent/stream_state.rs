//! Keeps the state of an output reader: the last text, the result, and the running tools. All of it is bounded.

use std::collections::VecDeque;

use serde_json::Value;

use super::output_event::{AgentOutputEvent, AgentResult};
use crate::text;

/// The most bytes of one reported text.
const MAX_TEXT_BYTES: usize = 16 << 10;
/// The most bytes reported about a tool.
const MAX_BRIEF_BYTES: usize = 200;
/// The most tools that are remembered as running.
const MAX_OPEN_TOOLS: usize = 256;

/// The state of a reader.
#[derive(Debug, Default)]
pub(super) struct AgentStreamState {
    last_text: String,
    tools: VecDeque<(String, String)>,
    pub(super) result: Option<AgentResult>,
}

impl AgentStreamState {
    /// Records a text as the last one.
    pub(super) fn record_text(&mut self, text: &str) -> Option<AgentOutputEvent> {
        let text = bounded_text(text);
        if text.trim().is_empty() {
            return None;
        }
        self.last_text.clone_from(&text);
        Some(AgentOutputEvent::Text(text))
    }

    pub(super) fn tool_started(&mut self, id: &str, name: &str, brief: &str) -> AgentOutputEvent {
        let name = one_line(name);
        if self.tools.len() == MAX_OPEN_TOOLS {
            self.tools.pop_front();
        }
        self.tools.push_back((text::head(id, MAX_BRIEF_BYTES).to_owned(), name.clone()));
        AgentOutputEvent::Tool { name, brief: one_line(brief) }
    }

    pub(super) fn tool_finished(&mut self, id: &str, ok: bool, brief: &str) -> AgentOutputEvent {
        let id = text::head(id, MAX_BRIEF_BYTES);
        let at = self.tools.iter().position(|(known, _)| known == id);
        let name = at.and_then(|at| self.tools.remove(at)).map_or_else(|| "tool".to_owned(), |(_, name)| name);
        AgentOutputEvent::ToolDone { name, ok, brief: one_line(brief) }
    }

    pub(super) fn finish(&mut self, mut finished: AgentResult) {
        finished.text = bounded_text(&finished.text);
        finished.why = finished.why.as_deref().map(bounded_text);
        if !finished.text.trim().is_empty() {
            self.last_text.clone_from(&finished.text);
        }
        self.result = Some(finished);
    }

    pub(super) fn last_text(&self) -> String {
        self.last_text.clone()
    }
}

/// Truncates a text to what is kept and removes terminal control characters.
pub(super) fn bounded_text(text: &str) -> String {
    text::strip_control(text::head(text, MAX_TEXT_BYTES))
}

/// Appends a piece to a text that arrives in pieces.
pub(super) fn append_bounded(text: &mut String, piece: &str) {
    text.push_str(text::head(piece, MAX_TEXT_BYTES.saturating_sub(text.len())));
}

/// Returns the first non-empty line, truncated.
pub(super) fn one_line(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or_default();
    text::strip_control(text::head(line, MAX_BRIEF_BYTES)).replace(['\n', '\t'], " ")
}

pub(super) fn warning(why: &str) -> AgentOutputEvent {
    AgentOutputEvent::Warning(one_line(why))
}

/// Parses a line as a JSON object.
pub(super) fn json_object(line: &str) -> Option<Value> {
    let line = line.trim();
    if !line.starts_with('{') {
        return None;
    }
    serde_json::from_str::<Value>(line).ok().filter(Value::is_object)
}

/// Returns the text at a JSON pointer; `""` if there is none.
pub(super) fn str_at<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Returns the number at a JSON pointer; 0 if there is none.
pub(super) fn count_at(value: &Value, pointer: &str) -> u64 {
    value.pointer(pointer).and_then(Value::as_u64).unwrap_or(0)
}

pub(super) fn status_at(value: &Value, pointer: &str) -> Option<u16> {
    let found = value.pointer(pointer)?;
    let number = found.as_u64().or_else(|| found.as_str()?.parse().ok())?;
    u16::try_from(number).ok().filter(|status| (100..1000).contains(status))
}

/// Summarizes what a tool was asked to do: the argument that a user would look at first.
pub(super) fn summarize_arguments(arguments: &Value) -> String {
    const MAIN_ARGUMENTS: [&str; 16] = [
        "command",
        "cmd",
        "file_path",
        "filePath",
        "absolute_path",
        "path",
        "pattern",
        "query",
        "url",
        "prompt",
        "description",
        "title",
        "name",
        "dir_path",
        "task",
        "text",
    ];
    let Some(map) = arguments.as_object() else {
        return arguments.as_str().map(str::to_owned).unwrap_or_default();
    };
    let first = MAIN_ARGUMENTS.iter().find_map(|key| map.get(*key)).or_else(|| map.values().next());
    match first {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(words)) => words.iter().filter_map(Value::as_str).take(16).collect::<Vec<_>>().join(" "),
        _ => String::new(),
    }
}

/// Returns the text of a content field, which may be a string or a list of parts.
pub(super) fn content_text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts: Vec<&str> =
                parts.iter().map(|part| str_at(part, "/text")).filter(|text| !text.is_empty()).collect();
            texts.join("\n")
        }
        _ => String::new(),
    }
}
