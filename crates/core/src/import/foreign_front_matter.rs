//! Reads the front matter of another tool's task line by line: takes over the keys that a ralph task has too and keeps
//! the other lines verbatim.

use crate::task::{MAX_FRONT_BYTES, parse};

/// The parsed front matter of another tool.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ForeignFrontMatter {
    pub(super) task: Option<String>,
    pub(super) test_command: Option<String>,
    pub(super) max_iterations: Option<u32>,
    /// The lines that were not taken over.
    pub(super) unused_lines: Vec<String>,
}

/// Splits front matter from a page; a page that merely begins with a horizontal rule has none.
pub(super) fn split(source: &str) -> (Option<&str>, &str) {
    let start = source.trim_start_matches(['\n', ' ', '\t']);
    let Some(inner) =
        start.strip_prefix("---").and_then(|rest| rest.split_once('\n')).filter(|(line, _)| line.trim().is_empty())
    else {
        return (None, source);
    };
    let mut at = 0;
    for line in inner.1.split_inclusive('\n') {
        if at > MAX_FRONT_BYTES {
            break;
        }
        if line.trim_end() == "---" {
            let front = inner.1.get(..at).unwrap_or_default();
            let body = inner.1.get(at + line.len()..).unwrap_or_default();
            return if front.lines().any(|line| key_and_value(line).is_some()) {
                (Some(front), body)
            } else {
                (None, source)
            };
        }
        at += line.len();
    }
    (None, source)
}

/// Reads the entries that have an equivalent in a ralph task.
pub(super) fn read(front: &str) -> ForeignFrontMatter {
    let mut other = ForeignFrontMatter::default();
    for line in front.lines().filter(|line| !line.trim().is_empty()) {
        let taken = match key_and_value(line) {
            Some(("task", value)) if other.task.is_none() => scalar(value).map(|task| other.task = Some(task)),
            Some(("test_command", value)) if other.test_command.is_none() => {
                scalar(value).map(|command| other.test_command = Some(command))
            }
            Some(("max_iterations", value)) => {
                let number = value.parse().ok().filter(|number| (1..=1000).contains(number));
                number.map(|number| other.max_iterations = Some(number))
            }
            _ => None,
        };
        let comment = line.split_once(" #").map(|(_, comment)| format!("#{comment}").trim_end().to_owned());
        match taken {
            None => other.unused_lines.push(line.trim_end().to_owned()),
            // A comment after a value is not part of the value, but it is kept.
            Some(()) => other.unused_lines.extend(comment),
        }
    }
    other
}

/// Returns whether a text already is a ralph task.
pub(super) fn is_task_file(source: &str) -> bool {
    parse(source).is_ok_and(|task| !task.boxes.is_empty())
}

fn key_and_value(line: &str) -> Option<(&str, &str)> {
    let (key, value) = line.split_once(':')?;
    let word = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'));
    (word && (value.is_empty() || value.starts_with([' ', '\t']))).then_some((key, value.trim()))
}

/// Returns a single-line value without its quotes.
fn scalar(value: &str) -> Option<String> {
    let text = if value.starts_with('"') {
        serde_json::from_str::<String>(value).ok()?
    } else if let Some(inner) = value.strip_prefix('\'') {
        inner.strip_suffix('\'')?.replace("''", "'")
    } else if value.starts_with(['|', '>', '[', '{', '&', '*', '!', '%', '@', '`', '#']) {
        return None;
    } else {
        value.split(" #").next().unwrap_or_default().trim().to_owned()
    };
    let usable = !text.trim().is_empty() && text.len() <= 2000 && !text.contains(['\n', '\0']);
    usable.then(|| text.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages() {
        for (source, want) in [
            ("---\ntask: x\n---\nbody", (Some("task: x\n"), "body")),
            ("\n--- \ntask: x\n---", (Some("task: x\n"), "")),
            ("---\nwords only\n---\nbody", (None, "---\nwords only\n---\nbody")),
            ("---\ntask: x\nbody", (None, "---\ntask: x\nbody")),
            ("---x\ntask: x\n---\n", (None, "---x\ntask: x\n---\n")),
            ("# x\n---\na: b\n---\n", (None, "# x\n---\na: b\n---\n")),
        ] {
            assert_eq!(split(source), want, "{source:?}");
        }
    }

    #[test]
    fn entries() {
        let front =
            "task: Build it # now\ntest_command: \"npm \\\"x\\\"\"\nmax_iterations: 20\n\nbrowser: yes\nlist:\n  - a\n";
        let want = ForeignFrontMatter {
            task: Some("Build it".to_owned()),
            test_command: Some("npm \"x\"".to_owned()),
            max_iterations: Some(20),
            unused_lines: vec!["# now".to_owned(), "browser: yes".to_owned(), "list:".to_owned(), "  - a".to_owned()],
        };
        assert_eq!(read(front), want);
        let left = |line: &str| read(line).unused_lines.len();
        for line in
            ["test_command: |", "test_command:", "test_command: 'x", "max_iterations: 0", "max_iterations: many"]
        {
            assert_eq!(left(line), 1, "{line}");
        }
        assert_eq!(read("test_command: 'it''s'").test_command.as_deref(), Some("it's"));
    }
}
