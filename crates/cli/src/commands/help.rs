//! `ralph help`: topics that are tables in the code.

use clap::CommandFactory as _;
use ralph_core::env;
use ralph_core::exit::Exit;
use ralph_core::task::KEYS;
use ralph_core::text::did_you_mean;

use crate::args::Cli;
use crate::error::{Failure, Outcome};
use crate::render::columns;
use crate::ui::Ui;
use crate::usage::no_command;

const TOPICS: [&str; 3] = ["exit-codes", "environment", "task-file"];

pub(crate) fn help(topic: Option<&str>, ui: &mut Ui) -> Outcome {
    let rows: Vec<Vec<String>> = match topic {
        None => {
            ui.raw(&Cli::command().render_long_help().to_string());
            ui.data(&format!("\nTopics: ralph help {}", TOPICS.join(" | ")));
            return Ok(Exit::Success);
        }
        Some("exit-codes") => {
            Exit::ALL.iter().map(|exit| vec![exit.code().to_string(), exit.meaning().to_owned()]).collect()
        }
        Some("environment") => env::ALL.iter().map(|var| vec![var.name.to_owned(), var.meaning.to_owned()]).collect(),
        Some("task-file") => {
            for line in TASK_FILE.lines() {
                ui.data(line);
            }
            KEYS.iter().map(|key| vec![key.name.to_owned(), key.default.to_owned(), key.meaning.to_owned()]).collect()
        }
        Some(name) => return command(name, ui),
    };
    for line in columns(&rows) {
        ui.data(&line);
    }
    Ok(Exit::Success)
}

fn command(name: &str, ui: &mut Ui) -> Outcome {
    let mut whole = Cli::command();
    whole.build();
    if let Some(found) = whole.find_subcommand_mut(name) {
        ui.raw(&found.render_long_help().to_string());
        return Ok(Exit::Success);
    }
    match did_you_mean(name, TOPICS) {
        Some(topic) => Err(Failure::usage(format!("there is no topic `{name}`")).hint(format!("ralph help {topic}"))),
        None => Err(no_command(name, &whole)),
    }
}

const TASK_FILE: &str = "\
A task file is YAML between `---` lines, then Markdown. Checkboxes are the definition of done:

  - [ ] M1.1 GET /health answers 200
    - verify: `sh tests/health.sh`

A box is ticked by ralph alone, after it has run the box's proof itself.
Keys, defaults and meanings:
";
