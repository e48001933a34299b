//! Writes the task file for a draft and checks it with the task parser before returning it.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use super::draft::{CLAIMED, DraftItem, TaskDraft, append, code_span, one_line};
use super::error::PlanImportError;
use super::{ImportedTask, PlanKind};
use crate::task::{self, Task};
use crate::task_init::{default_limits, yaml_string};
use crate::text;

pub(super) fn write_task(
    name: &str,
    file: &str,
    source: &str,
    detected: Option<&str>,
    draft: &TaskDraft,
) -> Result<ImportedTask, PlanImportError> {
    let test_command = draft.test_command.clone().or_else(|| detected.map(str::to_owned));
    let wanted = draft.named.as_deref().unwrap_or(&draft.title);
    let task_id = [text::slug(wanted, 50), text::slug(file, 50)].into_iter().find(|slug| !slug.is_empty());
    let task_id = task_id.unwrap_or_else(|| "imported".to_owned());
    let mut remarks = draft.remarks.clone();
    let front = |bare: bool| front_matter(file, &task_id, test_command.as_deref(), draft, bare);
    let fits = |task: &Task, proofs: bool| {
        let ids: BTreeSet<&str> = task.boxes.iter().map(|checkbox| checkbox.id.as_str()).collect();
        task.boxes.len() == draft.items.len()
            && ids.len() == draft.items.len()
            && task.boxes.iter().zip(&draft.items).all(|(checkbox, item)| {
                !checkbox.done
                    && checkbox.id == item.id
                    && (!proofs || item.proofs.iter().all(|proof| checkbox.proofs.contains(proof)))
            })
    };
    let bare = |task: &Task| task.boxes.iter().any(|checkbox| checkbox.proofs.is_empty());
    let mut written = Err("the task made from it could not be parsed".to_owned());
    for body in [draft.body.clone(), plain_list_body(file, source, draft)] {
        // Whether a box lacks a proof is known only after parsing the result.
        let first = format!("{}\n{body}", front(true));
        written = match task::parse(&first) {
            Ok(task) if fits(&task, true) => {
                let whole = if bare(&task) { first } else { format!("{}\n{body}", front(false)) };
                let proved = task.boxes.iter().filter(|checkbox| !checkbox.proofs.is_empty()).count();
                Ok((whole, proved))
            }
            Ok(_) => Err("its lists could not be separated".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        if written.is_ok() {
            break;
        }
    }
    let (task, proved) = written.map_err(|why| PlanImportError::NoTask { name: name.to_owned(), why })?;
    if test_command.is_none() {
        remarks.push("nothing shows how the project is tested: add a `test_command`".to_owned());
    }
    let claimed = draft.items.iter().filter(|item| item.claimed).count();
    Ok(ImportedTask {
        kind: draft.kind.unwrap_or(PlanKind::Plan),
        task_id,
        task,
        test_command,
        items: draft.items.len(),
        claimed,
        proved,
        remarks,
    })
}

/// Writes the front matter; `bare` says that some box has no proof of its own.
fn front_matter(file: &str, task_id: &str, test_command: Option<&str>, draft: &TaskDraft, bare: bool) -> String {
    let mut out = format!("---\ntask_id: {task_id}\n");
    let mut line = |text: &str| writeln!(out, "{text}").expect("writing to a String cannot fail");
    line(&format!("# Made from {}.", one_line(file)));
    if draft.items.iter().any(|item| item.claimed) {
        line(&format!("# A box marked {CLAIMED} is done according to {}. None of this is proved yet.", one_line(file)));
    }
    if !draft.comments.is_empty() {
        line("# From its front matter, without an equivalent here:");
        for comment in &draft.comments {
            line(&format!("#   {comment}"));
        }
    }
    line("");
    match test_command {
        Some(command) => {
            line("# The command that must succeed for the task to succeed.");
            line(&format!("test_command: {}", yaml_string(command)));
        }
        None => {
            line("# Nothing shows how the project is tested. Add the command that must succeed:");
            line("# test_command: \"sh tests/all.sh\"");
        }
    }
    let covering = test_command.map(str::to_owned).filter(|_| bare);
    let gates: Vec<String> = draft.gates.iter().cloned().chain(covering).map(|gate| yaml_string(&gate)).collect();
    if bare {
        line("# These prove the boxes without a proof of their own. A proof that fails today is worth more.");
    }
    match (gates.is_empty(), bare) {
        (false, _) => line(&format!("verify_commands: [{}]", gates.join(", "))),
        (true, true) => line("# verify_commands: [\"sh tests/all.sh\"]"),
        (true, false) => (),
    }
    line("");
    let stops = default_limits();
    let stops = match draft.max_iterations {
        Some(most) => stops.replace("max_iterations: 30", &format!("max_iterations: {most}")),
        None => stops.to_owned(),
    };
    line(stops.trim_end());
    if draft.items.len() < 2 {
        line("min_checkboxes: 1");
    }
    line("---");
    out
}

/// Writes the items as a plain list with the unchanged source below it, for pages whose layout inserted boxes would
/// break.
fn plain_list_body(file: &str, source: &str, draft: &TaskDraft) -> String {
    let mut out = format!("# {}\n\n", escape_markdown(&draft.title));
    for DraftItem { id, words, claimed, proofs } in &draft.items {
        let note = if *claimed { format!("{CLAIMED} ") } else { String::new() };
        append(&mut out, format_args!("- [ ] {id} {note}{}\n", escape_markdown(words)));
        for proof in proofs {
            append(&mut out, format_args!("  - verify: {}\n", code_span(proof)));
        }
    }
    let longest = source.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest.max(2) + 1);
    append(
        &mut out,
        format_args!("\n## {} as it was\n\n{fence}\n{}\n{fence}\n", escape_markdown(file), source.trim_end()),
    );
    out
}

/// Escapes everything in a line that has a meaning in Markdown.
fn escape_markdown(line: &str) -> String {
    let mut out = String::new();
    for c in one_line(text::first_line(line, 500)).chars() {
        if c.is_ascii_punctuation() && !matches!(c, ',' | '.' | ':' | ';' | '\'' | '"' | '(' | ')' | '/' | '-' | '?') {
            out.push('\\');
        }
        out.push(c);
    }
    out
}
