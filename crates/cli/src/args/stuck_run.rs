//! Defines the arguments of the commands for a run that goes in circles.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum GutterCommand {
    /// Print the arithmetic of every loop score of a run, and what was done about it
    #[command(after_help = "Examples:\n  ralph gutter explain @\n  ralph gutter explain 01k3 4 --json")]
    Explain(GutterExplainArgs),
}

#[derive(Debug, Args)]
pub(crate) struct GutterExplainArgs {
    /// A run: a unique prefix of its id, its branch, or @ for the latest
    pub(crate) run: String,
    /// Only this iteration
    #[arg(value_name = "N", value_parser = super::at_least_one::<u32>)]
    pub(crate) iteration: Option<u32>,
}

#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    /// A run: a unique prefix of its id, its branch, or @ for the latest
    pub(crate) run: String,
    /// The proposal to carry out [default: none, all are listed]
    #[arg(value_name = "N", value_parser = super::at_least_one::<u32>)]
    pub(crate) number: Option<u32>,
}

#[derive(Debug, Args)]
pub(crate) struct SetProfileArgs {
    /// A run: a unique prefix of its id, its branch, or @ for the latest
    pub(crate) run: String,
    /// One of the profiles the run was started with
    pub(crate) profile: String,
}

#[derive(Debug, Args)]
pub(crate) struct EditTaskArgs {
    /// A run: a unique prefix of its id, its branch, or @ for the latest
    pub(crate) run: String,
    /// The file with the whole new task
    pub(crate) file: PathBuf,
    /// Take it even where it removes or weakens what checks the work
    #[arg(long)]
    pub(crate) allow_weaker: bool,
}
