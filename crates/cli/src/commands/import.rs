//! `ralph import`: converts another tool's plan into a task file.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use ralph_core::exit_code::RalphExitCode;
use ralph_core::import::{ImportedTask, MAX_BYTES, PlanSource, import as make};
use ralph_engine::setup::{TASK_FILE, shell_quote};
use ralph_engine::store::write_atomic;

use super::init::detect_project;
use crate::args::ImportArgs;
use crate::error::{CliError, CliResult};
use crate::run_setup::{CliSetup, error_with_hint};
use crate::terminal_output::{Ui, one_line};

pub(crate) async fn import(setup: &CliSetup, args: &ImportArgs, ui: &mut Ui) -> CliResult {
    let repo = setup.repo().await?;
    let to = match &args.to {
        Some(to) => std::path::absolute(to).map_err(|error| CliError::from_error(RalphExitCode::Usage, &error))?,
        None => repo.top().join(TASK_FILE),
    };
    let shown = args.to.clone().unwrap_or_else(|| PathBuf::from(TASK_FILE));
    let text = read_plan(&args.file)?;
    if is_same_file(&args.file, &to) {
        return Err(CliError::usage(format!("`{}` would be overwritten by the imported task", args.file.display()))
            .hint(format!("ralph import {} --to tasks/imported.md", shell_quote(&args.file))));
    }
    if to.symlink_metadata().is_ok() && !args.force {
        let to = args.to.as_ref().map_or_else(String::new, |to| format!(" --to {}", shell_quote(to)));
        return Err(CliError::usage(format!("`{}` already exists", shown.display()))
            .hint(format!("name another with `--to`, or: ralph import {}{to} --force", shell_quote(&args.file))));
    }
    let found = detect_project(repo.top())?;
    let name = args.file.display().to_string();
    let source = PlanSource { name: &name, text: &text, test_command: found.test_command.as_deref() };
    let imported = make(&source).map_err(|error| error_with_hint(RalphExitCode::Usage, &error, Some(error.hint())))?;
    write_atomic(&to, imported.task.as_bytes())?;
    if ui.json() {
        ui.print_json(&serde_json::json!({"format": 1, "file": to, "from": args.file, "kind": imported.kind,
            "task_id": imported.task_id, "test_command": imported.test_command, "items": imported.items,
            "claimed": imported.claimed, "proved": imported.proved, "remarks": imported.remarks}));
        return Ok(RalphExitCode::Success);
    }
    print_summary(&imported, &shown, ui);
    Ok(RalphExitCode::Success)
}

fn print_summary(imported: &ImportedTask, to: &Path, ui: &mut Ui) {
    let ImportedTask { items, claimed, proved, .. } = imported;
    let boxes = |n: usize| if n == 1 { "1 box".to_owned() } else { format!("{n} boxes") };
    ui.print_message(&format!("wrote {} from {}: {}", to.display(), imported.kind.description(), boxes(*items)));
    if *claimed > 0 {
        ui.print_message(&format!(
            "note: {} marked as done in the plan; none is proved yet, so they are open",
            boxes(*claimed)
        ));
    }
    let covered = items.saturating_sub(*proved);
    if let Some(command) = imported.test_command.as_deref().filter(|_| covered > 0) {
        ui.print_message(&format!(
            "note: {} without a check of their own, proved by `{}`",
            boxes(covered),
            one_line(command, 120)
        ));
    }
    for remark in &imported.remarks {
        ui.print_message(&format!("note: {}", one_line(remark, 200)));
    }
    let lint = if to == Path::new(TASK_FILE) { String::new() } else { format!(" {}", shell_quote(to)) };
    ui.print_message(&format!("next: read it, give each box a proof that fails today, then ralph lint{lint}"));
}

/// Reads a plan up to the largest size that a plan may have.
fn read_plan(path: &Path) -> Result<String, CliError> {
    let failed = |why: &dyn std::error::Error| {
        CliError::usage(format!("could not read `{}`", path.display()))
            .with_cause(why)
            .hint("name a plan in UTF-8: ralph import docs/plans/PLAN.md")
    };
    let kind = std::fs::metadata(path).map_err(|error| failed(&error))?;
    if !kind.is_file() {
        return Err(CliError::usage(format!("`{}` is not a file", path.display()))
            .hint("name a plan in UTF-8: ralph import docs/plans/PLAN.md"));
    }
    let file = std::fs::File::open(path).map_err(|error| failed(&error))?;
    let mut bytes = Vec::new();
    // One byte more than allowed shows that the file is too large.
    file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(|error| failed(&error))?;
    if bytes.len() > MAX_BYTES {
        let error = ralph_core::import::PlanImportError::TooLarge {
            name: path.display().to_string(),
            bytes: usize::try_from(kind.len()).unwrap_or(usize::MAX),
        };
        return Err(error_with_hint(RalphExitCode::Usage, &error, Some(error.hint())));
    }
    String::from_utf8(bytes).map_err(|error| failed(&error.utf8_error()))
}

fn is_same_file(one: &Path, other: &Path) -> bool {
    matches!((one.canonicalize(), other.canonicalize()), (Ok(one), Ok(other)) if one == other)
}
