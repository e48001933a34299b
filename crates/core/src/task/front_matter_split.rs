//! Finds where the front matter ends and the Markdown begins, by looking at lines only.
//!
//! It also enforces the size limits: a parser that only gets small and shallow texts stays fast on hostile ones.

use super::error::{TaskProblem, TaskProblemKind};
use super::front_matter_keys;
use crate::source_span::Span;

/// The largest task text: far above any real task, small enough that every later pass is quick.
pub const MAX_BYTES: usize = 512 << 10;
/// The largest front matter.
pub const MAX_FRONT_BYTES: usize = 64 << 10;
/// The maximum number of lists and quotes that one line may be nested in; two columns of indentation count as one.
pub const MAX_NESTING: usize = 100;

/// The two parts of a task text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TaskSections {
    /// The YAML, without its fences; `None` where an issue has none.
    pub front: Option<Span>,
    pub body: Span,
}

/// Which openings count as front matter.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum TaskSourceKind {
    /// `---` lines only, and they are required.
    #[default]
    Task,
    /// `---` lines, a fenced block, or bare `key: value` lines; or none.
    Issue,
}

/// Splits a text; a failure is the only problem reported, because nothing after it can be trusted.
pub(crate) fn split(source: &str, opening: TaskSourceKind) -> Result<TaskSections, TaskProblem> {
    if source.len() > MAX_BYTES {
        return Err(TaskProblem::new(
            TaskProblemKind::TooLarge,
            source,
            Span::new(0, 0),
            format!("the task has {} bytes, more than {MAX_BYTES}", source.len()),
        )
        .with_hint("move long material into files of the repo and name them in the task"));
    }
    let frame = split_front_matter(source, opening)?;
    if let Some(front) = frame.front
        && front.end - front.start > MAX_FRONT_BYTES
    {
        return Err(TaskProblem::new(
            TaskProblemKind::TooLarge,
            source,
            Span::new(front.start, front.start),
            format!("the front matter has {} bytes, more than {MAX_FRONT_BYTES}", front.end - front.start),
        ));
    }
    match first_too_deep_line(source, frame.body) {
        Some(span) => Err(TaskProblem::new(
            TaskProblemKind::TooDeep,
            source,
            span,
            format!("this line is nested more than {MAX_NESTING} lists or quotes deep"),
        )),
        None => Ok(frame),
    }
}

/// Returns the lines of `source` from `start` on, each with its span without the line ending.
fn lines(source: &str, start: usize) -> impl Iterator<Item = (Span, &str)> {
    let mut at = start;
    source.get(start..).unwrap_or("").split_inclusive('\n').map(move |line| {
        let text = line.trim_end_matches(['\n', '\r']);
        let span = Span::new(at, at + text.len());
        at += line.len();
        (span, text)
    })
}

/// Returns the start of the line after the one that ends at `end`.
fn next_line(source: &str, end: usize) -> usize {
    source.get(end..).and_then(|rest| rest.find('\n')).map_or(source.len(), |newline| end + newline + 1)
}

fn split_front_matter(source: &str, opening: TaskSourceKind) -> Result<TaskSections, TaskProblem> {
    let start = if source.starts_with('\u{feff}') { 3 } else { 0 };
    let first = lines(source, start).find(|(_, line)| !line.trim().is_empty());
    let whole = TaskSections { front: None, body: Span::new(start, source.len()) };
    let Some((span, line)) = first else {
        return missing_front_matter(source, whole, Span::new(start, start), opening);
    };
    let opener = line.trim_end();
    let closes: Box<dyn Fn(&str) -> bool> = if opener == "---" {
        Box::new(|line| line.trim_end() == "---")
    } else if opening == TaskSourceKind::Issue && is_code_fence(opener) {
        let fence: String = opener.chars().take_while(|c| *c == '`' || *c == '~').collect();
        let first_inside = lines(source, next_line(source, span.end)).find(|(_, line)| !line.trim().is_empty());
        // A leading code block is front matter only if it has known keys.
        if !first_inside.is_some_and(|(_, line)| is_known_entry(line)) {
            return Ok(whole);
        }
        Box::new(move |line| line.trim_end() == fence)
    } else if opening == TaskSourceKind::Issue && is_known_entry(line) {
        return Ok(bare_front_matter(source, span.start));
    } else {
        return missing_front_matter(source, whole, span, opening);
    };
    let inner = next_line(source, span.end);
    match lines(source, inner).find(|(_, line)| closes(line)) {
        Some((close, _)) => Ok(TaskSections {
            front: Some(Span::new(inner, close.start)),
            body: Span::new(next_line(source, close.end), source.len()),
        }),
        None => Err(TaskProblem::new(TaskProblemKind::Unclosed, source, span, "the front matter is not closed")
            .with_hint(format!("add a line `{}` after the last key", if opener == "---" { "---" } else { "```" }))),
    }
}

fn missing_front_matter(
    source: &str,
    whole: TaskSections,
    span: Span,
    opening: TaskSourceKind,
) -> Result<TaskSections, TaskProblem> {
    match opening {
        TaskSourceKind::Issue => Ok(whole),
        TaskSourceKind::Task => {
            Err(TaskProblem::new(TaskProblemKind::NoFrontMatter, source, span, "the task has no front matter")
                .with_hint(
                    "start the file with a `---` line, the keys, and another `---` line; `ralph init` writes one",
                ))
        }
    }
}

/// Splits bare front matter: from its first line to the first line that cannot be part of it.
fn bare_front_matter(source: &str, start: usize) -> TaskSections {
    let mut end = start;
    for (span, line) in lines(source, start) {
        let continues = line.starts_with([' ', '\t']) || line.starts_with("- ");
        if line.trim().is_empty() || !(continues || entry_key(line).is_some()) {
            break;
        }
        end = next_line(source, span.end);
    }
    TaskSections { front: Some(Span::new(start, end)), body: Span::new(end, source.len()) }
}

fn is_code_fence(line: &str) -> bool {
    let info = line.trim_start_matches('`');
    let ticks = line.len() - info.len();
    let info = if ticks == 0 { line.trim_start_matches('~') } else { info };
    line.len() - info.len() >= 3 && matches!(info.trim(), "" | "yaml" | "yml")
}

/// Returns the key of an unindented `key: value` line.
fn entry_key(line: &str) -> Option<&str> {
    let (key, value) = line.split_once(':')?;
    let word = !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
    (word && (value.is_empty() || value.starts_with([' ', '\t']))).then_some(key)
}

/// Capitals count too, so that `Branch: x` becomes an error with a hint and is not taken for prose.
fn is_known_entry(line: &str) -> bool {
    entry_key(line).is_some_and(|name| {
        front_matter_keys::TASK_KEYS
            .iter()
            .chain(front_matter_keys::ISSUE_KEYS)
            .any(|key| key.name.eq_ignore_ascii_case(name))
    })
}

/// Returns the first line that is nested deeper than any real text.
///
/// Markdown parsers keep one level per marker and walk all of them on every following line.
fn first_too_deep_line(source: &str, body: Span) -> Option<Span> {
    lines(source, body.start).find(|(_, line)| nesting_depth(line) > MAX_NESTING).map(|(span, _)| span)
}

/// Returns the maximum nesting that the markers and the indentation of a line can mean; 0 for a line that opens none.
fn nesting_depth(line: &str) -> usize {
    let bytes = line.as_bytes();
    let (mut at, mut markers, mut columns) = (0, 0, 0_usize);
    while let Some(byte) = bytes.get(at) {
        let followed_by_space = |at: usize| bytes.get(at).is_none_or(|b| *b == b' ' || *b == b'\t');
        match byte {
            b' ' => columns += 1,
            b'\t' => columns += 4,
            b'>' => markers += 1,
            b'-' | b'*' | b'+' if followed_by_space(at + 1) => markers += 1,
            b'0'..=b'9' => {
                let digits = bytes.iter().skip(at).take_while(|b| b.is_ascii_digit()).count();
                at += digits;
                if !matches!(bytes.get(at), Some(b'.' | b')')) || !followed_by_space(at + 1) {
                    break;
                }
                markers += 1;
            }
            _ => break,
        }
        at += 1;
    }
    // One space belongs to each marker; the others may continue lists of earlier lines.
    if markers == 0 { 0 } else { markers + columns.saturating_sub(markers) / 2 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(source: &str, opening: TaskSourceKind, want: Option<(Option<&str>, &str)>) {
        let got = split(source, opening).ok();
        let got = got.map(|frame| (frame.front.map(|front| front.of(source)), frame.body.of(source)));
        assert_eq!(got, want, "{source:?}");
    }

    #[test]
    fn task_frames() {
        let task = TaskSourceKind::Task;
        check("---\na: 1\n---\nbody", task, Some((Some("a: 1\n"), "body")));
        check("\u{feff}---\r\na: 1\r\n---\r\nbody", task, Some((Some("a: 1\r\n"), "body")));
        check("\n\n--- \na: 1\n---\t\n", task, Some((Some("a: 1\n"), "")));
        check("---\n---\n", task, Some((Some(""), "")));
        check("---\na: |\n  ---\n---\n", task, Some((Some("a: |\n  ---\n"), "")));
        check("---\na: 1\n", task, None);
        check("branch: x\n", task, None);
        check("", task, None);
        check("\u{feff}", task, None);
    }

    #[test]
    fn issue_frames() {
        let issue = TaskSourceKind::Issue;
        check("branch: x\ndepends:\n- 4\n# Title\n", issue, Some((Some("branch: x\ndepends:\n- 4\n"), "# Title\n")));
        check("branch: x\n\nbase: y\n", issue, Some((Some("branch: x\n"), "\nbase: y\n")));
        check("```yaml\nbranch: x\n```\nbody", issue, Some((Some("branch: x\n"), "body")));
        check("~~~\nbranch: x\n~~~\n", issue, Some((Some("branch: x\n"), "")));
        check("```\ncargo test\n```\n", issue, Some((None, "```\ncargo test\n```\n")));
        check("Branch: x\n", issue, Some((Some("Branch: x\n"), "")));
        check("note: prose\n", issue, Some((None, "note: prose\n")));
        check("```\nbranch: x\n", issue, None);
        check("", issue, Some((None, "")));
    }

    #[test]
    fn nesting_is_limited() {
        for (line, want) in [
            ("> > - 1. x", 4),
            ("-----", 0),
            ("- - -", 3),
            (">>>>", 4),
            ("2026 x", 0),
            ("1) 2) x", 2),
            ("", 0),
            ("      - x", 4),
            ("        x", 0),
            ("\t\t- x", 5),
        ] {
            assert_eq!(nesting_depth(line), want, "{line:?}");
        }
        for line in ["> ".repeat(MAX_NESTING + 1), "  ".repeat(MAX_NESTING + 1) + "- x"] {
            let deep = format!("---\na: 1\n---\n{line}");
            assert_eq!(
                split(&deep, TaskSourceKind::Task).map_err(|problem| problem.kind),
                Err(TaskProblemKind::TooDeep)
            );
        }
        let large = "[".repeat(5 << 20);
        assert_eq!(split(&large, TaskSourceKind::Task).map_err(|problem| problem.kind), Err(TaskProblemKind::TooLarge));
    }
}
