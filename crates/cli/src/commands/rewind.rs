//! `ralph rewind`: resets a run to where an iteration ended.

use ralph_core::exit_code::RalphExitCode;
use ralph_engine::run::rewind as back;

use crate::args::RewindArgs;
use crate::error::CliResult;
use crate::foreground::DisplayNotifier;
use crate::run_setup::CliSetup;
use crate::terminal_output::Ui;

pub(crate) async fn rewind(setup: &CliSetup, args: &RewindArgs, ui: &mut Ui) -> CliResult {
    let folder = setup.find_run_to_change(&args.run)?;
    let id = folder.id();
    let sha = back(&setup.host, folder, args.iteration, Box::new(DisplayNotifier::default())).await?;
    if ui.json() {
        ui.print_json(&serde_json::json!({"format": 1, "run": id, "iteration": args.iteration, "commit": sha}));
        return Ok(RalphExitCode::Success);
    }
    ui.print_message(&format!(
        "run {id} is back at iteration {} ({})",
        args.iteration,
        ralph_core::text::head(&sha, 10)
    ));
    ui.print_message(&format!("next: ralph resume {id}"));
    Ok(RalphExitCode::Success)
}
