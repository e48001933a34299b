//! `ralph completions` and `ralph man`: generated from the definition of the command line.

use clap::CommandFactory as _;
use clap_complete::Shell;
use ralph_core::exit_code::RalphExitCode;

use crate::arg_errors::unknown_command;
use crate::args::Cli;
use crate::error::{CliError, CliResult};
use crate::terminal_output::Ui;

pub(crate) fn completions(shell: Shell, ui: &mut Ui) -> RalphExitCode {
    let mut out = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "ralph", &mut out);
    ui.print_raw(&String::from_utf8_lossy(&out));
    RalphExitCode::Success
}

pub(crate) fn man(command: Option<&str>, ui: &mut Ui) -> CliResult {
    let mut whole = Cli::command();
    whole.build();
    let chosen = match command {
        None => whole,
        Some(name) => match whole.find_subcommand(name) {
            Some(found) => found.clone(),
            None => return Err(unknown_command(name, &whole)),
        },
    };
    let mut out = Vec::new();
    clap_mangen::Man::new(chosen)
        .render(&mut out)
        .map_err(|error| CliError::from_error(RalphExitCode::Failed, &error))?;
    ui.print_raw(&String::from_utf8_lossy(&out));
    Ok(RalphExitCode::Success)
}
