//! `ralph completions` and `ralph man`: made from the command line's own definition.

use clap::CommandFactory as _;
use clap_complete::Shell;
use ralph_core::exit::Exit;

use crate::args::Cli;
use crate::error::{Failure, Outcome};
use crate::ui::Ui;
use crate::usage::no_command;

pub(crate) fn completions(shell: Shell, ui: &mut Ui) -> Exit {
    let mut out = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "ralph", &mut out);
    ui.raw(&String::from_utf8_lossy(&out));
    Exit::Success
}

pub(crate) fn man(command: Option<&str>, ui: &mut Ui) -> Outcome {
    let mut whole = Cli::command();
    whole.build();
    let chosen = match command {
        None => whole,
        Some(name) => match whole.find_subcommand(name) {
            Some(found) => found.clone(),
            None => return Err(no_command(name, &whole)),
        },
    };
    let mut out = Vec::new();
    clap_mangen::Man::new(chosen).render(&mut out).map_err(|error| Failure::of(Exit::Failed, &error))?;
    ui.raw(&String::from_utf8_lossy(&out));
    Ok(Exit::Success)
}
