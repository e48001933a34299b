//! `ralph sandbox`: the places runs work in, listed and cleaned up.

use std::sync::Arc;

use ralph_core::exit::Exit;
use ralph_core::run::Status;
use ralph_sandbox::{Label, Listed, Prune as Rule};
use serde_json::json;

use crate::args::{Backend, Prune, Sandbox};
use crate::error::{Failure, Outcome};
use crate::render::columns;
use crate::setup::Setup;
use crate::ui::Ui;

pub(crate) async fn sandbox(setup: &Setup, args: Sandbox, ui: &mut Ui) -> Outcome {
    match args {
        Sandbox::Ls(on) => ls(setup, &on, ui).await,
        Sandbox::Rm { name, on } => rm(setup, &name, &on, ui).await,
        Sandbox::Exec(args) => super::sandbox_exec::exec(setup, *args, ui).await,
        Sandbox::Stop { name, on } => stop(setup, &name, &on, ui).await,
        Sandbox::Prune(args) => prune(setup, &args, ui).await,
    }
}

/// Returns the backend that was named, or all.
fn backends(setup: &Setup, on: &Backend) -> Result<Vec<Arc<dyn ralph_sandbox::Backend>>, Failure> {
    match &on.backend {
        Some(name) => Ok(vec![setup.host.backend(name)?]),
        None => Ok(setup.host.backends()),
    }
}

async fn ls(setup: &Setup, on: &Backend, ui: &mut Ui) -> Outcome {
    let mut listed = Vec::new();
    for backend in backends(setup, on)? {
        let name = backend.capabilities().name;
        listed.extend(backend.list().await.map_err(ralph_engine::Error::from)?.into_iter().map(|one| (name, one)));
    }
    if ui.json() {
        let rows: Vec<_> = listed
            .iter()
            .map(|(backend, listed)| {
                json!({"name": listed.id, "backend": backend, "run": listed.labels.get(Label::RUN),
                    "role": listed.labels.get(Label::ROLE), "state": state(setup, listed)})
            })
            .collect();
        ui.object(&json!({"format": 1, "sandboxes": rows}));
        return Ok(Exit::Success);
    }
    if listed.is_empty() {
        ui.say("no sandboxes");
        return Ok(Exit::Success);
    }
    let mut table = vec![["SANDBOX", "BACKEND", "FOR", "RUN", "STATE"].map(str::to_owned).to_vec()];
    table.extend(listed.iter().map(|(backend, listed)| {
        let label = |name: &str| listed.labels.get(name).cloned().unwrap_or_else(|| "-".to_owned());
        let (role, run) = (label(Label::ROLE), label(Label::RUN));
        vec![listed.id.clone(), (*backend).to_owned(), role, run, state(setup, listed).to_owned()]
    }));
    for line in columns(&table) {
        ui.data(&line);
    }
    Ok(Exit::Success)
}

/// Returns how the run of a sandbox stands.
fn state(setup: &Setup, listed: &Listed) -> &'static str {
    let Some(run) = listed.labels.get(Label::RUN) else { return "-" };
    let folder = setup.host.home.folder(run);
    if !folder.events_path().exists() {
        return "gone";
    }
    folder.state().map_or("unreadable", |state| ralph_web::view::word(&state, folder.in_use()))
}

async fn rm(setup: &Setup, sandbox: &str, on: &Backend, ui: &mut Ui) -> Outcome {
    let backend = setup.host.backend_of(sandbox, on.backend.as_deref()).await?;
    let listed = backend.list().await.map_err(ralph_engine::Error::from)?;
    let Some(found) = listed.iter().find(|listed| listed.id == sandbox) else {
        return Err(Failure::usage(format!("there is no sandbox `{sandbox}`")).hint("ralph sandbox ls"));
    };
    let run = found.labels.get(Label::RUN).filter(|run| setup.host.home.folder(run).events_path().exists());
    if let Some(run) = run.filter(|run| setup.host.home.folder(run).in_use()) {
        return Err(
            Failure::usage(format!("run `{run}` works in sandbox `{sandbox}` now")).hint(format!("ralph stop {run}"))
        );
    }
    let open = backend.open(sandbox).await.map_err(ralph_engine::Error::from)?;
    open.destroy().await.map_err(ralph_engine::Error::from)?;
    if ui.json() {
        ui.object(&json!({"format": 1, "removed": [sandbox]}));
        return Ok(Exit::Success);
    }
    ui.say(&format!("sandbox {sandbox} is removed"));
    let resumable =
        |run: &&String| setup.host.home.folder(run).state().is_ok_and(|state| state.status != Status::Succeeded);
    if let Some(run) = run.filter(resumable) {
        ui.say(&format!("next: ralph resume --recreate {run}, to go on from what it handed over"));
    }
    Ok(Exit::Success)
}

async fn stop(setup: &Setup, sandbox: &str, on: &Backend, ui: &mut Ui) -> Outcome {
    let backend = setup.host.backend_of(sandbox, on.backend.as_deref()).await?;
    let open = backend.open(sandbox).await.map_err(ralph_engine::Error::from)?;
    open.stop().await.map_err(ralph_engine::Error::from)?;
    if ui.json() {
        ui.object(&json!({"format": 1, "stopped": [sandbox]}));
    } else {
        ui.say(&format!("nothing runs in sandbox {sandbox} any more; its files are as they were"));
    }
    Ok(Exit::Success)
}

pub(crate) async fn prune(setup: &Setup, args: &Prune, ui: &mut Ui) -> Outcome {
    // A run that can go on keeps its sandbox, and so does one whose history cannot be read.
    let kept = |found: &ralph_engine::store::Found| {
        found.folder.in_use() || found.state.as_ref().map_or(true, |state| state.status != Status::Succeeded)
    };
    let runs = setup.host.home.runs()?;
    let keep = runs.iter().filter(|found| kept(found)).map(|found| found.folder.id()).collect();
    let rule = Rule::NotOfRuns(keep);
    let mut pruned = Vec::new();
    for backend in backends(setup, &args.on)? {
        pruned.extend(backend.prune(&rule, args.dry_run).await.map_err(ralph_engine::Error::from)?);
    }
    let stuck = pruned.iter().filter(|one| !one.removed && !args.dry_run).count();
    let exit = if stuck == 0 { Exit::Success } else { Exit::Failed };
    if ui.json() {
        ui.object(&json!({"format": 1, "dry_run": args.dry_run, "sandboxes": pruned}));
        return Ok(exit);
    }
    for one in &pruned {
        let word = match (one.removed, args.dry_run) {
            (true, _) => "removed",
            (false, true) => "would remove",
            (false, false) => "could not remove",
        };
        ui.data(&format!("{word} {}: {}", one.id, one.why));
    }
    if pruned.is_empty() {
        ui.say("nothing to remove: every sandbox belongs to a run that can go on");
    }
    Ok(exit)
}
