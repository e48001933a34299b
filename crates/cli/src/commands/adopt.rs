//! `ralph adopt`: rebuilds a run whose folder is gone from its sandbox.

use std::path::Path;

use ralph_core::exit_code::RalphExitCode;
use ralph_engine::run::{adopt as rebuild, sandbox_origin};
use ralph_engine::setup::{RunOverrides, resolve_run};

use crate::args::AdoptArgs;
use crate::error::{CliError, CliResult};
use crate::foreground::DisplayNotifier;
use crate::run_setup::CliSetup;
use crate::terminal_output::Ui;

pub(crate) async fn adopt(setup: &CliSetup, args: &AdoptArgs, ui: &mut Ui) -> CliResult {
    let backend = setup.host.backend_of(&args.sandbox, args.backend.as_deref()).await?.capabilities().name;
    let from = sandbox_origin(&setup.host, backend, &args.sandbox).await?;
    let path = Path::new(&from.repo).join(&from.task_path);
    let mut read = setup.load_task(Some(&path)).await.map_err(|failure| {
        if path.exists() {
            failure
        } else {
            CliError::usage(format!("the task file `{}` is needed to rebuild the run, and it is gone", path.display()))
                .hint("restore it, then adopt again")
        }
    })?;
    read.repo_path.clone_from(&from.task_path);
    let flags = RunOverrides { backend: Some(backend.to_owned()), ..RunOverrides::default() };
    let spec = resolve_run(&setup.host, &read, &flags)?;
    let runner = rebuild(&setup.host, from, &args.sandbox, spec, Box::new(DisplayNotifier::default())).await?;
    let id = runner.state().id().to_owned();
    if ui.json() {
        ui.print_json(&serde_json::json!({"format": 1, "run": id, "sandbox": args.sandbox}));
        return Ok(RalphExitCode::Success);
    }
    ui.print_message(&format!(
        "run {id} was rebuilt from sandbox {}: {} iterations, {} spent",
        args.sandbox,
        runner.state().spent.iterations,
        runner.state().spent.cost
    ));
    ui.print_message(&format!("next: ralph resume {id}"));
    Ok(RalphExitCode::Success)
}
