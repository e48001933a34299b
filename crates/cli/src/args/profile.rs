//! Defines the arguments of `ralph profile`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum ProfileCommand {
    /// List the model profiles: model, price, origin, key and whether they need trust
    #[command(after_help = "Examples:\n  ralph profile ls\n  ralph profile ls --json")]
    Ls,
    /// Make one tiny real call with each profile: who answers, how fast, at what cost, or what to fix
    #[command(
        after_help = "Each call asks for a few tokens and costs a fraction of a cent. Exits with 4 when a key is missing or refused.\n\nExamples:\n  ralph profile test\n  ralph profile test default-cheap strong-doctor --json"
    )]
    Test(ProfileTestArgs),
    /// Show the prices in force, or import LiteLLM's price file over those that ship with ralph
    #[command(
        after_help = "Examples:\n  ralph profile prices\n  ralph profile prices zai/glm gpt-5 --json\n  ralph profile prices --import model_prices_and_context_window.json"
    )]
    Prices(ProfilePricesArgs),
}

#[derive(Debug, Args)]
pub(crate) struct ProfileTestArgs {
    /// The profiles to try [default: those a run here would use]
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ProfilePricesArgs {
    /// Only models whose name contains one of these [default: all]
    #[arg(value_name = "MODEL")]
    pub(crate) models: Vec<String>,
    /// Take the prices of LiteLLM's model_prices_and_context_window.json, for all runs from now on
    #[arg(long, value_name = "FILE")]
    pub(crate) import: Option<PathBuf>,
}
