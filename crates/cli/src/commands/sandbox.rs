//! `ralph sandbox`: lists, stops and removes the sandboxes that runs work in.

use std::sync::Arc;

use ralph_core::exit_code::RalphExitCode;
use ralph_core::run::RunStatus;
use ralph_sandbox::{PruneRule as Rule, SandboxLabel, SandboxSummary};
use serde_json::json;

use crate::args::{BackendFlag, PruneArgs, SandboxCommand};
use crate::error::{CliError, CliResult};
use crate::render::align_columns;
use crate::run_setup::CliSetup;
use crate::terminal_output::Ui;

pub(crate) async fn sandbox(setup: &CliSetup, args: SandboxCommand, ui: &mut Ui) -> CliResult {
    match args {
        SandboxCommand::Ls(on) => ls(setup, &on, ui).await,
        SandboxCommand::Rm { name, on } => rm(setup, &name, &on, ui).await,
        SandboxCommand::Exec(args) => super::sandbox_exec::exec(setup, *args, ui).await,
        SandboxCommand::Stop { name, on } => stop(setup, &name, &on, ui).await,
        SandboxCommand::Prune(args) => prune(setup, &args, ui).await,
    }
}

/// Returns the backend that the flag names, or all backends.
fn backends(setup: &CliSetup, on: &BackendFlag) -> Result<Vec<Arc<dyn ralph_sandbox::Backend>>, CliError> {
    match &on.backend {
        Some(name) => Ok(vec![setup.host.backend(name)?]),
        None => Ok(setup.host.backends().to_vec()),
    }
}

async fn ls(setup: &CliSetup, on: &BackendFlag, ui: &mut Ui) -> CliResult {
    let mut listed = Vec::new();
    for backend in backends(setup, on)? {
        let name = backend.capabilities().name;
        listed.extend(backend.list().await.map_err(ralph_engine::Error::from)?.into_iter().map(|one| (name, one)));
    }
    if ui.json() {
        let rows: Vec<_> = listed
            .iter()
            .map(|(backend, listed)| {
                json!({"name": listed.id, "backend": backend, "run": listed.labels.get(SandboxLabel::RUN),
                    "role": listed.labels.get(SandboxLabel::ROLE), "state": run_state(setup, listed)})
            })
            .collect();
        ui.print_json(&json!({"format": 1, "sandboxes": rows}));
        return Ok(RalphExitCode::Success);
    }
    if listed.is_empty() {
        ui.print_message("no sandboxes");
        return Ok(RalphExitCode::Success);
    }
    let mut table = vec![["SANDBOX", "BACKEND", "FOR", "RUN", "STATE"].map(str::to_owned).to_vec()];
    table.extend(listed.iter().map(|(backend, listed)| {
        let label = |name: &str| listed.labels.get(name).cloned().unwrap_or_else(|| "-".to_owned());
        let (role, run) = (label(SandboxLabel::ROLE), label(SandboxLabel::RUN));
        vec![listed.id.clone(), (*backend).to_owned(), role, run, run_state(setup, listed).to_owned()]
    }));
    for line in align_columns(&table) {
        ui.print_data(&line);
    }
    Ok(RalphExitCode::Success)
}

/// Returns the state of the run that a sandbox belongs to.
fn run_state(setup: &CliSetup, listed: &SandboxSummary) -> &'static str {
    let Some(run) = listed.labels.get(SandboxLabel::RUN) else { return "-" };
    let folder = setup.host.home.run_folder(run);
    if !folder.events_path().exists() {
        return "gone";
    }
    folder.listing().map_or("unreadable", |listing| ralph_web::view::status_word(&listing.status, folder.is_live()))
}

async fn rm(setup: &CliSetup, sandbox: &str, on: &BackendFlag, ui: &mut Ui) -> CliResult {
    let backend = setup.host.backend_of(sandbox, on.backend.as_deref()).await?;
    let listed = backend.list().await.map_err(ralph_engine::Error::from)?;
    let Some(found) = listed.iter().find(|listed| listed.id == sandbox) else {
        return Err(CliError::usage(format!("there is no sandbox `{sandbox}`")).hint("ralph sandbox ls"));
    };
    let run = found.labels.get(SandboxLabel::RUN).filter(|run| setup.host.home.run_folder(run).events_path().exists());
    if let Some(run) = run.filter(|run| setup.host.home.run_folder(run).is_held()) {
        return Err(
            CliError::usage(format!("run `{run}` works in sandbox `{sandbox}` now")).hint(format!("ralph stop {run}"))
        );
    }
    let open = backend.open(sandbox).await.map_err(ralph_engine::Error::from)?;
    open.destroy().await.map_err(ralph_engine::Error::from)?;
    if ui.json() {
        ui.print_json(&json!({"format": 1, "removed": [sandbox]}));
        return Ok(RalphExitCode::Success);
    }
    ui.print_message(&format!("sandbox {sandbox} is removed"));
    let resumable =
        |run: &&String| setup.host.home.run_folder(run).state().is_ok_and(|state| state.status != RunStatus::Succeeded);
    if let Some(run) = run.filter(resumable) {
        ui.print_message(&format!("next: ralph resume --recreate {run}, to continue from its last imported commit"));
    }
    Ok(RalphExitCode::Success)
}

async fn stop(setup: &CliSetup, sandbox: &str, on: &BackendFlag, ui: &mut Ui) -> CliResult {
    let backend = setup.host.backend_of(sandbox, on.backend.as_deref()).await?;
    let open = backend.open(sandbox).await.map_err(ralph_engine::Error::from)?;
    open.stop().await.map_err(ralph_engine::Error::from)?;
    if ui.json() {
        ui.print_json(&json!({"format": 1, "stopped": [sandbox]}));
    } else {
        ui.print_message(&format!("nothing runs in sandbox {sandbox} any more; its files are unchanged"));
    }
    Ok(RalphExitCode::Success)
}

pub(crate) async fn prune(setup: &CliSetup, args: &PruneArgs, ui: &mut Ui) -> CliResult {
    // A run that can be resumed keeps its sandbox, and so does one whose history cannot be read.
    let kept = |found: &ralph_engine::store::StoredRun| {
        found.state.as_ref().map_or(true, |state| state.status != RunStatus::Succeeded) || found.folder.is_held()
    };
    let runs = setup.host.home.runs()?;
    let keep = runs.iter().filter(|found| kept(found)).map(|found| found.folder.id()).collect();
    let rule = Rule::NotOfRuns(keep);
    let mut pruned = Vec::new();
    for backend in backends(setup, &args.on)? {
        pruned.extend(backend.prune(&rule, args.dry_run).await.map_err(ralph_engine::Error::from)?);
    }
    let stuck = pruned.iter().filter(|one| !one.removed && !args.dry_run).count();
    let exit = if stuck == 0 { RalphExitCode::Success } else { RalphExitCode::Failed };
    if ui.json() {
        ui.print_json(&json!({"format": 1, "dry_run": args.dry_run, "sandboxes": pruned}));
        return Ok(exit);
    }
    for one in &pruned {
        let word = match (one.removed, args.dry_run) {
            (true, _) => "removed",
            (false, true) => "would remove",
            (false, false) => "could not remove",
        };
        ui.print_data(&format!("{word} {}: {}", one.id, one.why));
    }
    if pruned.is_empty() {
        ui.print_message("nothing to remove: every sandbox belongs to a run that can be resumed");
    }
    Ok(exit)
}
