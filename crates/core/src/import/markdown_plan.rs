//! Turns a Markdown page into the body of a task with as few insertions as possible: the page's own text and order
//! stay.

use std::collections::{BTreeMap, BTreeSet};

use super::draft::{CLAIMED, DraftItem, TaskDraft, append, code_span, one_line};
use super::error::PlanImportError;
use super::markdown_page::{MarkdownPage, scan_page};
use super::{MOST_ITEMS, PlanKind, check_command, foreign_front_matter};
use crate::task::{self, Checkbox};

/// A minimal front matter, put before a body so that the task parser accepts it.
const FRAME: &str = "---\ntask_id: x\n---\n";

/// The maximum number of commands of one item that become proofs.
const MAX_PROOFS: usize = 3;

pub(super) fn read(name: &str, file: &str, source: &str) -> Result<TaskDraft, PlanImportError> {
    if foreign_front_matter::is_task_file(source) {
        return Err(PlanImportError::Already { name: name.to_owned() });
    }
    let (head, body) = foreign_front_matter::split(source);
    let other = head.map(foreign_front_matter::read).unwrap_or_default();
    let mut remarks = Vec::new();
    match other.unused_lines.len() {
        0 => (),
        1 => remarks.push("a front-matter line has no equivalent in a task and is kept as a comment".to_owned()),
        n => remarks.push(format!("{n} front-matter lines have no equivalent in a task and are kept as comments")),
    }
    let body = add_missing_boxes(name, body.trim_start_matches('\n'), &mut remarks)?;
    let page = reject_oversized(name, scan_page(&body))?;
    let boxes = parse_boxes(name, &body)?;
    if boxes.is_empty() {
        return Err(PlanImportError::Nothing { name: name.to_owned() });
    }
    let stem = file.rsplit_once('.').map_or(file, |(stem, _)| stem);
    let first = page.headings.iter().find(|heading| heading.level == pulldown_cmark::HeadingLevel::H1);
    let title = first.map(|heading| one_line(&heading.text)).filter(|title| !title.is_empty());
    let titled = title.is_some();
    let mut comments = other.unused_lines;
    if let Some(task) = other.task.as_ref().filter(|_| titled) {
        comments.insert(0, format!("task: {task}"));
    }
    let title = title.or_else(|| other.task.clone()).unwrap_or_else(|| stem.to_owned());
    let mut edits = Vec::new();
    let items = draft_items(&body, &page, &boxes, &mut edits);
    let marked = apply_edits(&body, edits);
    let body = if titled { marked } else { format!("# {}\n\n{marked}", one_line(&title)) };
    let lower = file.to_ascii_lowercase();
    let kind = if lower == "ralph_task.md" || other.task.is_some() || other.test_command.is_some() {
        PlanKind::RalphTask
    } else if lower.contains("fix_plan") || lower.contains("fix-plan") || lower.contains("todo") {
        PlanKind::FixPlan
    } else {
        PlanKind::Plan
    };
    Ok(TaskDraft {
        kind: Some(kind),
        title,
        named: None,
        test_command: other.test_command,
        gates: Vec::new(),
        max_iterations: other.max_iterations,
        comments,
        body,
        items,
        remarks,
    })
}

/// Rejects a page that cannot be one task by its size, before any step that compares all items with each other.
fn reject_oversized(name: &str, page: MarkdownPage) -> Result<MarkdownPage, PlanImportError> {
    let most = page.boxes.len().max(page.headings.len()).max(page.entries.len());
    if most <= MOST_ITEMS {
        return Ok(page);
    }
    Err(PlanImportError::NoTask {
        name: name.to_owned(),
        why: format!("it has {most} items or headings, more than {MOST_ITEMS}"),
    })
}

fn parse_boxes(name: &str, body: &str) -> Result<Vec<Checkbox>, PlanImportError> {
    let task = task::parse(&format!("{FRAME}{body}"))
        .map_err(|error| PlanImportError::NoTask { name: name.to_owned(), why: error.to_string() })?;
    Ok(task.boxes)
}

/// An edit of the text at one position.
#[derive(Debug)]
struct PlanEdit {
    at: usize,
    removed: usize,
    text: String,
}

fn apply_edits(body: &str, mut edits: Vec<PlanEdit>) -> String {
    edits.sort_by_key(|edit| edit.at);
    let mut out = String::with_capacity(body.len() + edits.len() * 32);
    let mut at = 0;
    for edit in edits {
        out.push_str(body.get(at..edit.at).unwrap_or_default());
        out.push_str(&edit.text);
        at = edit.at + edit.removed;
    }
    out.push_str(body.get(at..).unwrap_or_default());
    out
}

/// Adds boxes to a page that has none: for task headings, or else for the items of its lists.
fn add_missing_boxes(name: &str, body: &str, remarks: &mut Vec<String>) -> Result<String, PlanImportError> {
    let page = reject_oversized(name, scan_page(body))?;
    let mut edits = Vec::new();
    let titles: Vec<Option<(bool, String)>> = page.headings.iter().map(|heading| task_heading(&heading.text)).collect();
    for (at, heading) in page.headings.iter().enumerate() {
        let Some((done, title)) = titles.get(at).cloned().flatten() else { continue };
        let end = page.section_end(at, body.len());
        let holds_more = page.boxes.iter().any(|place| (heading.range.start..end).contains(place))
            || page
                .headings
                .iter()
                .zip(&titles)
                .skip(at + 1)
                .any(|(next, title)| title.is_some() && next.range.start < end);
        if !holds_more {
            let range = body.get(heading.range.clone()).unwrap_or_default();
            let mark = if done { 'x' } else { ' ' };
            let text = format!("\n\n- [{mark}] {title}\n");
            edits.push(PlanEdit { at: heading.range.start + range.trim_end().len(), removed: 0, text });
        }
    }
    if edits.is_empty() && page.boxes.is_empty() {
        edits = boxes_for_lists(body, &page);
        if !edits.is_empty() {
            remarks.push("it has no boxes, so every item of its lists became one".to_owned());
        }
    }
    Ok(apply_edits(body, edits))
}

/// Returns the task that a heading names and whether it is done: `Task 3: words`, `2. [x] words`.
fn task_heading(text: &str) -> Option<(bool, String)> {
    let text = one_line(text);
    let numbered = text.trim_start_matches(|c: char| c.is_ascii_digit() || matches!(c, '.' | ')' | ' '));
    for (mark, done) in [("[ ]", false), ("[x]", true), ("[X]", true)] {
        if let Some(rest) = numbered.strip_prefix(mark) {
            return Some((done, rest.trim().to_owned()));
        }
    }
    let (word, rest) = text.split_once(' ')?;
    let kinds = ["Task", "Step", "Story", "Phase", "Issue", "Feature", "TASK", "STEP", "STORY"];
    let number = rest.split([':', ' ', '-', '—', '–']).next().unwrap_or_default();
    let counts = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let done = ["✅", "[done]", "[x]", "✓"].iter().any(|mark| text.contains(mark));
    (kinds.contains(&word) && counts).then(|| (done, text.clone()))
}

/// Returns boxes for the items of lists, as in plans without boxes; lists of remarks get none.
fn boxes_for_lists(body: &str, page: &MarkdownPage) -> Vec<PlanEdit> {
    const REMARK_SECTIONS: [&str; 11] = [
        "background",
        "context",
        "how ",
        "learn",
        "legend",
        "maintenance",
        "note",
        "overview",
        "principle",
        "reference",
        "rule",
    ];
    const DONE_SECTIONS: [&str; 3] = ["complet", "done", "finished"];
    let mut edits = Vec::new();
    for entry in &page.entries {
        let section = page.heading_before(entry.start).and_then(|at| page.headings.get(at));
        let section = section.map(|heading| heading.text.to_lowercase()).unwrap_or_default();
        if REMARK_SECTIONS.iter().any(|word| section.contains(word)) {
            continue;
        }
        let text = body.get(entry.clone()).unwrap_or_default();
        let marker = text.trim_start_matches(|c: char| c.is_ascii_digit());
        let Some(rest) = marker.strip_prefix(['-', '*', '+', '.', ')']) else { continue };
        let words = rest.trim_start_matches([' ', '\t']);
        if words.len() == rest.len()
            || words.starts_with(['\n', '[', '#', '>', '<', '`', '-', '*', '+', '|']) && !words.starts_with("**")
        {
            continue;
        }
        let done = DONE_SECTIONS.iter().any(|word| section.contains(word))
            || words.starts_with(['✅', '✓', '☑'])
            || words.starts_with("~~");
        let mark = if done { "[x] " } else { "[ ] " };
        edits.push(PlanEdit { at: entry.start + text.len() - words.len(), removed: 0, text: mark.to_owned() });
    }
    edits
}

/// Unticks every box, gives it an ID, and adds the proofs that the page names for it.
fn draft_items(body: &str, page: &MarkdownPage, boxes: &[Checkbox], edits: &mut Vec<PlanEdit>) -> Vec<DraftItem> {
    let offset = FRAME.len();
    let written: BTreeSet<&str> = boxes.iter().filter(|one| one.id_span.is_some()).map(|one| one.id.as_str()).collect();
    let mut seen: BTreeSet<String> = BTreeSet::new();
    let mut sections: BTreeMap<Option<usize>, (usize, usize)> = BTreeMap::new();
    let mut items = Vec::new();
    for (at, one) in boxes.iter().enumerate() {
        let mark = one.mark.start.saturating_sub(offset);
        let next = boxes.get(at + 1).map(|next| next.mark.start.saturating_sub(offset));
        let section = page.heading_before(mark);
        let count = sections.len() + 1;
        let (number, used) = sections.entry(section).or_insert((count, 0));
        let claimed = if one.done { format!(" {CLAIMED}") } else { String::new() };
        let own = one.id_span.filter(|_| !seen.contains(&one.id));
        let id = match own {
            Some(span) => {
                if one.done {
                    edits.push(PlanEdit { at: span.end.saturating_sub(offset), removed: 0, text: claimed });
                }
                one.id.clone()
            }
            None => {
                let id = loop {
                    *used += 1;
                    let id = format!("M{number}.{used}");
                    if !written.contains(id.as_str()) {
                        break id;
                    }
                };
                edits.push(PlanEdit { at: mark + 2, removed: 0, text: format!(" {id}{claimed}") });
                id
            }
        };
        seen.insert(id.clone());
        if one.done {
            edits.push(PlanEdit { at: mark, removed: 1, text: " ".to_owned() });
        }
        let end = section.map_or_else(
            || page.headings.first().map_or(body.len(), |heading| heading.range.start),
            |heading| page.section_end(heading, body.len()),
        );
        let end = next.unwrap_or(body.len()).min(end);
        let proofs = if one.proofs.is_empty() { proofs_for_box(page, mark, end) } else { Vec::new() };
        let block = page.block_at(mark).and_then(|at| page.blocks.get(at));
        if let Some(block) = block.filter(|_| !proofs.is_empty()) {
            let line_end = body.get(block.range.end..).and_then(|rest| rest.find('\n'));
            let line_end = line_end.map_or(body.len(), |newline| block.range.end + newline);
            let indent = indent(body, mark);
            let mut text = String::new();
            for proof in &proofs {
                append(&mut text, format_args!("\n{indent}verify: {}", code_span(proof)));
            }
            edits.push(PlanEdit { at: line_end, removed: 0, text });
        }
        let proofs = if block.is_some() { proofs } else { Vec::new() };
        items.push(DraftItem { id, words: one_line(&one.text), claimed: one.done, proofs });
    }
    items
}

/// Returns the indentation that aligns a line with the text of a box.
fn indent(body: &str, mark: usize) -> String {
    let before = body.get(..mark.saturating_sub(1)).unwrap_or_default();
    let line = before.rsplit('\n').next().unwrap_or_default();
    line.chars().map(|c| if c == '\t' { '\t' } else { ' ' }).collect()
}

/// Returns the checks named for the box at `mark`, before `end`.
fn proofs_for_box(page: &MarkdownPage, mark: usize, end: usize) -> Vec<String> {
    const PROOF_LEAD_WORDS: [&str; 10] = [
        "run",
        "verify",
        "verification",
        "test",
        "check",
        "validate",
        "validation",
        "evidence",
        "entrypoint",
        "command",
    ];
    let own = page.block_at(mark);
    let words = |block: usize| page.blocks.get(block).map(|block| block.text.trim()).unwrap_or_default();
    if own.is_some_and(|own| check_command::meant_to_fail(words(own))) {
        return Vec::new();
    }
    let mut found: Vec<String> = Vec::new();
    for code in page.codes_from(mark).take_while(|code| code.at < end) {
        let lead = words(code.block).split(|c: char| !c.is_alphanumeric()).next().unwrap_or_default().to_lowercase();
        let named = Some(code.block) == own || PROOF_LEAD_WORDS.contains(&lead.as_str());
        let after = words(code.block + 1);
        let fails = check_command::meant_to_fail(words(code.block))
            || after.to_lowercase().starts_with("expect") && check_command::meant_to_fail(after);
        let new = !found.contains(&code.text);
        if named && !fails && new && check_command::is_check_command(&code.text) && found.len() < MAX_PROOFS {
            found.push(code.text.clone());
        }
    }
    found
}
