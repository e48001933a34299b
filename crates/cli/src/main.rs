//! Entry point of `ralph`, which lets a coding agent work alone on a task and returns a pull request whose every claim
//! was proved again.

mod arg_errors;
mod args;
mod commands;
mod debug_log;
mod environment;
mod error;
mod foreground;
mod render;
mod run_setup;
mod terminal_output;
mod watch;

use std::process::ExitCode;

use clap::Parser as _;
use clap::error::ErrorKind;
use ralph_core::exit_code::RalphExitCode;

use crate::args::{Cli, ColorMode};
use crate::environment::ProcessEnvironment;
use crate::error::CliError;
use crate::terminal_output::Ui;

fn main() -> ExitCode {
    // First, before any thread starts: this may be the process that builds a cage.
    if let Some(code) = ralph_sandbox::platform::helper_entry().or_else(ralph_redteam::payload_entry) {
        return code;
    }
    let environment = environment::read();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return report_arg_error(&error, &environment),
    };
    let progress = environment.env.get("RALPH_NO_PROGRESS").is_none_or(str::is_empty)
        && environment.env.get("TERM") != Some("dumb");
    let mut ui = Ui::new(cli.color.choice(&environment.env), cli.json, progress);
    if let Some(filter) = environment.env.get("RALPH_LOG") {
        debug_log::to_stderr(filter, &environment, &mut ui);
    }
    raise_open_file_limit();
    let outcome = match tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build() {
        Ok(runtime) => {
            let outcome = runtime.block_on(commands::dispatch(cli, environment, &mut ui));
            // No task that still runs in the background has an owner at this point.
            runtime.shutdown_background();
            outcome
        }
        Err(error) => Err(CliError::from_error(RalphExitCode::NotReady, &error)),
    };
    ui.clear_status();
    let exit = match outcome {
        Ok(exit) => exit,
        Err(failure) => {
            failure.report(&mut ui);
            failure.exit
        }
    };
    ExitCode::from(exit.code())
}

/// Prints clap's result: help and version are answers, everything else is an error in the command line.
fn report_arg_error(error: &clap::Error, environment: &ProcessEnvironment) -> ExitCode {
    if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        // If the terminal is gone, there is nowhere to report it.
        let _ = error.print();
        return if error.use_stderr() { ExitCode::from(RalphExitCode::Usage.code()) } else { ExitCode::SUCCESS };
    }
    let args: Vec<_> = std::env::args_os().collect();
    let json = args.iter().take_while(|arg| *arg != "--").any(|arg| arg == "--json");
    let failure = arg_errors::cli_error(error, &args);
    failure.report(&mut Ui::new(ColorMode::Auto.choice(&environment.env), json, false));
    ExitCode::from(failure.exit.code())
}

/// Raises the limit of open files to the system's maximum: each connection of a sandbox needs two.
fn raise_open_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // A lower limit works too, with fewer simultaneous connections.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}
