//! `ralph diff`: prints what a run changed, read from the host's repository.

use ralph_core::exit_code::RalphExitCode;
use ralph_core::text::strip_control;
use ralph_engine::git;

use crate::args::DiffArgs;
use crate::error::{CliError, CliResult};
use crate::run_setup::CliSetup;
use crate::terminal_output::Ui;

pub(crate) async fn diff(setup: &CliSetup, args: &DiffArgs, ui: &mut Ui) -> CliResult {
    let folder = setup.find_run(&args.run)?;
    let state = folder.state()?;
    let tool = &setup.host.git;
    let range = git::diff_range(tool, &folder, &state, args.iteration).await.map_err(ralph_engine::Error::from)?;
    let Some((from, to)) = range else {
        let message = match args.iteration {
            Some(n) => format!("iteration {n} of run `{}` has no commits", folder.id()),
            None => format!("run `{}` has has no commits yet", folder.id()),
        };
        return Err(CliError::new(RalphExitCode::Failed, message).hint(format!("ralph logs {}", folder.id())));
    };
    if ui.json() {
        let stat = git::diffstat(tool, &folder, &from, &to).await.map_err(ralph_engine::Error::from)?;
        let patch = if args.stat {
            None
        } else {
            Some(git::diff(tool, &folder, &from, &to).await.map_err(ralph_engine::Error::from)?)
        };
        ui.print_json(&serde_json::json!({"format": 1, "from": from, "to": to, "files": stat, "patch": patch}));
        return Ok(RalphExitCode::Success);
    }
    if args.stat {
        for file in git::diffstat(tool, &folder, &from, &to).await.map_err(ralph_engine::Error::from)? {
            ui.print_data(&format!(
                "{:>6} {:>6}  {}",
                signed_count('+', file.added),
                signed_count('-', file.removed),
                strip_control(&file.path)
            ));
        }
    } else {
        ui.print_raw(&strip_control(&git::diff(tool, &folder, &from, &to).await.map_err(ralph_engine::Error::from)?));
    }
    Ok(RalphExitCode::Success)
}

fn signed_count(sign: char, lines: Option<u64>) -> String {
    lines.map_or_else(|| "binary".to_owned(), |lines| format!("{sign}{lines}"))
}
