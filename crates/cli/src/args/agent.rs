//! Defines the arguments of `ralph agent`.

use clap::{Args, Subcommand};

#[derive(Debug, Subcommand)]
pub(crate) enum AgentCommand {
    /// List the coding agents: where each was found, what keeps your key from it, and how it was tested
    #[command(after_help = "Examples:\n  ralph agent ls\n  ralph agent ls --json")]
    Ls,
    /// Fetch an agent's package in a cage that may reach only its registry, for all sandboxes to use
    #[command(
        disable_version_flag = true,
        after_help = "Examples:\n  ralph agent install codex\n  ralph agent install claude --version 2.1.325"
    )]
    Install(AgentInstallArgs),
}

#[derive(Debug, Args)]
pub(crate) struct AgentInstallArgs {
    /// The agent: `ralph agent ls` lists them
    pub(crate) name: String,
    /// The version to fetch [default: the newest]
    #[arg(long, value_name = "V")]
    pub(crate) version: Option<String>,
    /// Let the cage reach this registry of your own too; can be given more than once
    #[arg(long, value_name = "HOST")]
    pub(crate) allow_host: Vec<String>,
}
