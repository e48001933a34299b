//! `ralph help`: prints the help topics that are generated from tables in the code.

use clap::CommandFactory as _;
use ralph_core::env_vars;
use ralph_core::exit_code::RalphExitCode;
use ralph_core::task::TASK_KEYS;
use ralph_core::text::did_you_mean;

use crate::arg_errors::unknown_command;
use crate::args::Cli;
use crate::error::{CliError, CliResult};
use crate::render::align_columns;
use crate::terminal_output::Ui;

const TOPICS: [&str; 3] = ["exit-codes", "environment", "task-file"];

pub(crate) fn help(topic: Option<&str>, ui: &mut Ui) -> CliResult {
    let rows: Vec<Vec<String>> = match topic {
        None => {
            ui.print_raw(&Cli::command().render_long_help().to_string());
            ui.print_data(&format!("\nTopics: ralph help {}", TOPICS.join(" | ")));
            return Ok(RalphExitCode::Success);
        }
        Some("exit-codes") => {
            RalphExitCode::ALL.iter().map(|exit| vec![exit.code().to_string(), exit.meaning().to_owned()]).collect()
        }
        Some("environment") => {
            env_vars::ALL.iter().map(|var| vec![var.name.to_owned(), var.meaning.to_owned()]).collect()
        }
        Some("task-file") => {
            for line in TASK_FILE_HELP.lines() {
                ui.print_data(line);
            }
            TASK_KEYS
                .iter()
                .map(|key| vec![key.name.to_owned(), key.default.to_owned(), key.meaning.to_owned()])
                .collect()
        }
        Some(name) => return command_help(name, ui),
    };
    for line in align_columns(&rows) {
        ui.print_data(&line);
    }
    Ok(RalphExitCode::Success)
}

fn command_help(name: &str, ui: &mut Ui) -> CliResult {
    let mut whole = Cli::command();
    whole.build();
    if let Some(found) = whole.find_subcommand_mut(name) {
        ui.print_raw(&found.render_long_help().to_string());
        return Ok(RalphExitCode::Success);
    }
    match did_you_mean(name, TOPICS) {
        Some(topic) => Err(CliError::usage(format!("there is no topic `{name}`")).hint(format!("ralph help {topic}"))),
        None => Err(unknown_command(name, &whole)),
    }
}

const TASK_FILE_HELP: &str = "\
A task file is YAML between `---` lines, then Markdown. Checkboxes are the definition of done:

  - [ ] M1.1 GET /health answers 200
    - verify: `sh tests/health.sh`

A box is ticked by ralph alone, after it has run the box's proof itself.
Keys, defaults and meanings:
";
