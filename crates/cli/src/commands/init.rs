//! `ralph init`: writes a task file that fits the repository.

use std::path::Path;

use ralph_core::exit_code::RalphExitCode;
use ralph_core::task_init::{
    MAX_FILES, ProjectFiles, TaskTemplate as Kind, TestDetection, detect, is_ignored_folder, is_relevant_file,
    render_task,
};
use ralph_core::text::slug;
use ralph_engine::setup::TASK_FILE;
use ralph_engine::store::write_atomic;

use crate::args::{InitArgs, TemplateArg};
use crate::error::{CliError, CliResult};
use crate::run_setup::CliSetup;
use crate::terminal_output::{Ui, one_line};

/// How many folders deep the repository is searched.
const MAX_DEPTH: usize = 4;
/// The largest manifest that is read; a larger file is skipped.
const MANIFEST_BYTES: u64 = 1 << 20;

pub(crate) async fn init(setup: &CliSetup, args: &InitArgs, ui: &mut Ui) -> CliResult {
    let repo = setup.repo().await?;
    let top = repo.top();
    let path = top.join(TASK_FILE);
    // A dangling symbolic link is in the way too.
    if path.symlink_metadata().is_ok() && !args.force {
        return Err(CliError::usage(format!("`{TASK_FILE}` already exists"))
            .hint("edit it, or `ralph init --force` to start over"));
    }
    let found = detect_project(top)?;
    let kind = match args.template {
        TemplateArg::Minimal => Kind::Minimal,
        TemplateArg::Feature => Kind::Feature,
        TemplateArg::Bugfix => Kind::Bugfix,
    };
    let name = top.file_name().map(|name| slug(&name.to_string_lossy(), 40)).filter(|name| !name.is_empty());
    let id = format!("{}-001", name.as_deref().unwrap_or("task"));
    write_atomic(&path, render_task(kind, &id, &found).as_bytes())?;
    if ui.json() {
        ui.print_json(&serde_json::json!({"format": 1, "file": path, "test_command": found.test_command,
            "stacks": found.stacks, "remarks": found.remarks}));
        return Ok(RalphExitCode::Success);
    }
    print_detected(&found, ui);
    match &found.test_command {
        Some(command) => {
            ui.print_message(&format!("wrote {TASK_FILE}, tested by `{command}`"));
            ui.print_message("next: state in it what must be true, then ralph lint");
        }
        None => {
            ui.print_message(&format!("wrote {TASK_FILE}; no test command was found here"));
            ui.print_message("next: set your command as `test_command`, state what must be true, then ralph lint");
        }
    }
    Ok(RalphExitCode::Success)
}

/// Prints the detected projects and the evidence for each.
fn print_detected(found: &TestDetection, ui: &mut Ui) {
    for stack in &found.stacks {
        let place = if stack.folder.is_empty() { String::new() } else { format!(" in {}", stack.folder) };
        let because = one_line(&stack.because, 160);
        ui.print_message(&format!("found {}{place}: `{}` ({because})", stack.name, stack.command));
    }
    for remark in &found.remarks {
        ui.print_message(&format!("note: {}", one_line(remark, 200)));
    }
}

/// Detects projects in the upper folders of a repository, without following links.
pub(super) fn detect_project(top: &Path) -> Result<TestDetection, CliError> {
    let mut project = ProjectFiles::default();
    let mut folders = vec![(top.to_owned(), String::new(), 1)];
    while let Some((folder, within, depth)) = folders.pop() {
        let entries = match std::fs::read_dir(&folder) {
            Ok(entries) => entries,
            // An unreadable folder gives no information about the tests.
            Err(_) if depth > 1 => continue,
            Err(error) => {
                return Err(CliError::new(RalphExitCode::Failed, format!("could not list `{}`", folder.display()))
                    .with_cause(&error));
            }
        };
        for entry in entries.flatten() {
            // A task file is UTF-8, so it cannot contain a path that is not.
            let Ok(name) = entry.file_name().into_string() else { continue };
            let Ok(kind) = entry.file_type() else { continue };
            let path = if within.is_empty() { name.clone() } else { format!("{within}/{name}") };
            if kind.is_dir() && depth < MAX_DEPTH && !is_ignored_folder(&name) {
                folders.push((entry.path(), path, depth + 1));
            } else if kind.is_file() && project.files.len() < MAX_FILES {
                let small = entry.metadata().is_ok_and(|meta| meta.len() <= MANIFEST_BYTES);
                if is_relevant_file(&name)
                    && small
                    && let Ok(text) = ralph_engine::read_text_file(&entry.path())
                {
                    project.texts.insert(path.clone(), text);
                }
                project.files.insert(path);
            }
        }
    }
    Ok(detect(&project))
}
