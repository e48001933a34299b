//! Defines the arguments of `ralph audit` and `ralph policy`.

use clap::{Args, Subcommand};

use super::RunSelector;

#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Check that the audit log of a run is as it was written
    #[command(after_help = "Examples:\n  ralph audit verify @\n  ralph audit verify 01k3 --json")]
    Verify(RunSelector),
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// List the network rules in force and where they come from
    #[command(after_help = "Examples:\n  ralph policy ls\n  ralph policy ls --run @ --json")]
    Ls(RunFlag),
    /// Say whether a host could be reached, and by which rule
    #[command(
        after_help = "Examples:\n  ralph policy test registry.example.org\n  ralph policy test api.example.org:443 --method GET --path /v1/items --run @"
    )]
    Test(PolicyTestArgs),
    /// Let a run, or all runs from now on, reach a host
    #[command(
        after_help = "Examples:\n  ralph policy allow pypi --run @\n  ralph policy allow docs.example.org '*.cdn.example.org'"
    )]
    Allow(PolicyChangeArgs),
    /// Keep a run, or all runs from now on, from reaching a host
    #[command(
        after_help = "Examples:\n  ralph policy deny upload.example.org --run @\n  ralph policy deny github-read"
    )]
    Deny(PolicyChangeArgs),
    /// Print what the egress proxy decided for a run
    #[command(after_help = "Examples:\n  ralph policy log @ --denied\n  ralph policy log -f 01k3")]
    Log(PolicyLogArgs),
}

#[derive(Debug, Args)]
pub(crate) struct RunFlag {
    /// A run: a unique prefix of its id, its branch, or @ for the latest
    #[arg(long, value_name = "RUN")]
    pub(crate) run: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct PolicyTestArgs {
    /// The host, with its port unless that is 443
    #[arg(value_name = "HOST[:PORT]")]
    pub(crate) host: String,
    /// Check a request with this method
    #[arg(long, value_name = "METHOD")]
    pub(crate) method: Option<String>,
    /// Check a request for this path
    #[arg(long, value_name = "PATH")]
    pub(crate) path: Option<String>,
    #[command(flatten)]
    pub(crate) of: RunFlag,
}

#[derive(Debug, Args)]
pub(crate) struct PolicyChangeArgs {
    /// Hosts, *.suffix, host:port, METHOD host/path or presets
    #[arg(value_name = "HOST", required = true, num_args = 1..)]
    pub(crate) hosts: Vec<String>,
    #[command(flatten)]
    pub(crate) of: RunFlag,
}

#[derive(Debug, Args)]
pub(crate) struct PolicyLogArgs {
    /// A run: a unique prefix of its id, its branch, or @ for the latest
    pub(crate) run: String,
    /// Keep following until the run rests
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// Only what was refused
    #[arg(long)]
    pub(crate) denied: bool,
}
