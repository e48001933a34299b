//! Defines the arguments of `ralph secret` and its older names.
//!
//! No argument ever takes a secret's value: every program can read a command line, and the shell keeps it in its
//! history.

use clap::{Args, Subcommand, ValueEnum};
use ralph_core::secret::SecretKind;
use ralph_engine::secret::SecretStorage;

#[derive(Debug, Subcommand)]
pub(crate) enum SecretCommand {
    /// Store a credential: from standard input, or typed unseen at a terminal
    #[command(
        after_help = "Examples:\n  ralph secret set ANTHROPIC_API_KEY\n  ralph secret set GITHUB_PAT < token.txt\n  ralph secret set CLAUDE_CODE_OAUTH_TOKEN --expires 365"
    )]
    Set(SecretSetArgs),
    /// List credentials: name, kind, source, expiry and last use, never a value
    #[command(after_help = "Examples:\n  ralph secret ls\n  ralph secret ls --json")]
    Ls,
    /// Check whether credentials are present and how long they last
    #[command(after_help = "Examples:\n  ralph secret check\n  ralph secret check --agent claude")]
    Check(SecretCheckArgs),
    /// Print a credential's value to a pipe
    #[command(
        after_help = "Examples:\n  ralph secret get GITHUB_PAT | gh auth login --with-token\n  ralph secret get ANTHROPIC_API_KEY | wc -c"
    )]
    Get(SecretNameArg),
    /// Remove a credential
    #[command(after_help = "Examples:\n  ralph secret rm OPENAI_API_KEY\n  ralph secret rm GITHUB_PAT --json")]
    Rm(SecretNameArg),
}

#[derive(Debug, Args)]
pub(crate) struct SecretSetArgs {
    /// Its name, like that of the variable that would hold it
    pub(crate) name: String,
    #[command(flatten)]
    pub(crate) how: SecretSetOptions,
}

#[derive(Debug, Args)]
pub(crate) struct SecretSetOptions {
    /// What it is [default: derived from its name and shape]
    #[arg(long, value_enum)]
    pub(crate) kind: Option<SecretKindArg>,
    /// Where to keep it [default: the keyring where there is one, else a file only you can read]
    #[arg(long, value_enum)]
    pub(crate) source: Option<SecretSourceArg>,
    /// When it expires: a date like 2027-01-31, or days from now
    #[arg(long, value_name = "DATE|DAYS", allow_negative_numbers = true)]
    pub(crate) expires: Option<String>,
    /// Store it without trying it first
    #[arg(long)]
    pub(crate) no_validate: bool,
    /// Where to try it, for gateways and servers of your own
    #[arg(long, value_name = "URL")]
    pub(crate) base_url: Option<String>,
    /// Accepted only to be refused: a secret value has no place on a command line
    #[arg(hide = true, value_name = "NOTHING")]
    pub(crate) more: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SecretKindArg {
    Oauth,
    ApiKey,
    Gateway,
    GithubPat,
    GithubApp,
}

impl From<SecretKindArg> for SecretKind {
    fn from(kind: SecretKindArg) -> Self {
        match kind {
            SecretKindArg::Oauth => Self::Oauth,
            SecretKindArg::ApiKey => Self::ApiKey,
            SecretKindArg::Gateway => Self::Gateway,
            SecretKindArg::GithubPat => Self::GithubPat,
            SecretKindArg::GithubApp => Self::GithubApp,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum SecretSourceArg {
    Keyring,
    File,
}

impl From<SecretSourceArg> for SecretStorage {
    fn from(source: SecretSourceArg) -> Self {
        match source {
            SecretSourceArg::Keyring => Self::Keyring,
            SecretSourceArg::File => Self::File,
        }
    }
}

#[derive(Debug, Args)]
pub(crate) struct SecretCheckArgs {
    /// Only what this agent needs: claude, codex, gemini, …
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct SecretNameArg {
    /// Its name, as `ralph secret ls` shows it
    pub(crate) name: String,
}

/// The arguments of `store-token`, which was made for one agent's token.
#[derive(Debug, Args)]
pub(crate) struct StoreTokenArgs {
    /// The agent it is for
    #[arg(long, value_name = "NAME", default_value = "claude")]
    pub(crate) agent: String,
    #[command(flatten)]
    pub(crate) how: SecretSetOptions,
}

/// The arguments of `get-token`, which was made for one agent's token.
#[derive(Debug, Args)]
pub(crate) struct GetTokenArgs {
    /// The agent it is for
    #[arg(long, value_name = "NAME", default_value = "claude")]
    pub(crate) agent: String,
}
