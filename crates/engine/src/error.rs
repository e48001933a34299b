//! Defines the errors around a run, each with an exit code and a hint for the user.

use std::io;
use std::path::PathBuf;

use ralph_core::event::BadEventLine;
use ralph_core::exit_code::RalphExitCode;
use ralph_core::redact::SHORTEST;
use ralph_core::text::strip_control;
use ralph_sandbox::platform::DEFAULT_BACKEND;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("could not {doing} `{path}`")]
    File { doing: &'static str, path: PathBuf, source: io::Error },
    #[error("{}", no_run(wanted))]
    NoRun { wanted: String },
    #[error("`{wanted}` could mean {}", candidates.join(", "))]
    Ambiguous { wanted: String, candidates: Vec<String> },
    #[error("run `{run}` is in use by another process")]
    Locked { run: String },
    #[error("run `{run}` is not running")]
    NotRunning { run: String },
    #[error("event {number} of run `{run}` cannot be read")]
    BadEvent { run: String, number: u64, source: ralph_core::event::BadEventLine },
    #[error("the events of run `{run}` are not a valid history")]
    BadHistory { run: String, source: ralph_core::run::BadHistory },
    #[error("sandbox error")]
    Sandbox(#[from] ralph_sandbox::Error),
    #[error("git error")]
    Git(#[from] crate::git::Error),
    #[error(transparent)]
    Secret(#[from] crate::secret::Error),
    #[error("backend `{name}` is not available in this ralph")]
    NoBackend { name: String },
    #[error("{0}")]
    Refused(String),
    #[error("run `{run}` cannot do `{control}`: {why}")]
    ControlRefused { run: String, control: String, why: String },
    #[error("the proposals in `{path}` cannot be used: {why}", path = path.display())]
    Proposals { path: PathBuf, why: String },
    #[error("`{variable}` is not set, and profile `{profile}` needs it")]
    NoKey { profile: String, variable: String },
    #[error("profile `{profile}` calls `{host}` over `http://`, and a key (`{name}`) is not sent in clear text")]
    PlaintextKey { profile: String, name: String, host: String },
    #[error("profile `{profile}` calls `{host}`, and `{name}` is a Claude subscription, which only Anthropic may see")]
    ForeignSubscription { profile: String, name: String, host: String },
    #[error("`{name}` is shorter than {SHORTEST} characters: it could be neither masked nor detected")]
    ShortSecret { name: String },
    #[error("`{what}` cannot be granted to a sandbox: {why}")]
    Grant { what: String, why: String },
    #[error("there is no secret `{name}`")]
    NoSecret { name: String },
    #[error("profile `{profile}` cannot be used: {why}")]
    Profile { profile: String, why: String },
    #[error(
        "the price of profile `{profile}` is not known and the run has no token cap, so nothing would limit its cost"
    )]
    Unpriced { profile: String },
    #[error("agent `{name}` cannot be used: {why}")]
    Agent { name: String, why: String },
    #[error("the clone in the sandbox cannot be used any more: {why}")]
    CloneUnusable { why: String },
    #[error("the receipt cannot be trusted: {0}")]
    BadReceipt(String),
    #[error("run `{run}` cannot be adopted: {why}")]
    CannotAdopt { run: String, why: String, hint: String },
    #[error("commit `{sha}` of the receipt is in no repository here")]
    MissingCommit { sha: String, branch: String },
    #[error("there is no receipt: {why}")]
    NoReceipt { why: String, hint: String },
    #[error("run `{run}` cannot go back to iteration {n}: {why}")]
    CannotRewind { run: String, n: u32, why: &'static str },
    #[error("run `{run}` cannot continue: {why}")]
    CannotResume { run: String, why: String, hint: String },
    #[error("run `{run}` cannot continue: red first: {why}")]
    BaselineRefused { run: String, why: String },
    #[error("could not read random bytes from the system")]
    Random,
}

impl Error {
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoRun { wanted } if wanted == "@" => {
                Some("`ralph run` starts one, `ralph demo` shows one".to_owned())
            }
            Self::NoRun { .. } => Some("ralph ls".to_owned()),
            Self::Ambiguous { candidates, .. } => candidates.first().map(|first| format!("ralph show {first}")),
            Self::Locked { run } => Some(format!("ralph logs -f {run}")),
            Self::NotRunning { run } => Some(format!("ralph resume {run}")),
            Self::BadEvent { run, source: BadEventLine::Unknown(_), .. } | Self::BadHistory { run, .. } => {
                Some(format!("`ralph logs {run}` shows what can still be read"))
            }
            Self::BadEvent { source, .. } => source.hint(),
            Self::ControlRefused { run, .. } => Some(format!("ralph show {run}")),
            Self::CannotRewind { run, .. } => Some(format!("ralph logs {run}")),
            Self::Proposals { .. } => Some("ralph diagnose @ asks for new ones; rename that file first".to_owned()),
            Self::MissingCommit { branch, .. } => {
                Some(format!("go to the repository, then: git fetch origin {}", strip_control(branch)))
            }
            Self::BadReceipt(_) => Some("get the receipt again from where it was made".to_owned()),
            Self::File { source, .. } => Some(match source.kind() {
                io::ErrorKind::StorageFull => "free some disk space, then try again".to_owned(),
                _ => "check that the folder exists and that you can write to it; `ralph config path` lists ralph's own"
                    .to_owned(),
            }),
            Self::Sandbox(error) => error.hint(),
            Self::Git(error) => error.hint(),
            Self::Secret(error) => error.hint(),
            Self::NoBackend { .. } if DEFAULT_BACKEND != "local" => {
                Some("use the default, `--backend embedded`; `ralph doctor` says what this machine can do".to_owned())
            }
            Self::NoBackend { .. } => Some(
                "on this system there is only `--backend local`, which runs commands on it without isolation"
                    .to_owned(),
            ),
            Self::NoKey { variable, .. } => {
                Some(format!("ralph secret set {variable}, or export it, or put it into `.env`"))
            }
            Self::ForeignSubscription { host, .. } => Some(ralph_core::secret::subscription_hint(host)),
            Self::ShortSecret { name } => {
                Some(format!("create a longer one where it was issued, then: ralph secret set {name}"))
            }
            Self::PlaintextKey { host, .. } => Some(ralph_core::secret::cleartext_hint(host)),
            Self::NoSecret { name } => Some(format!("ralph secret set {name}")),
            Self::Agent { name, why } if why == NOT_INSTALLED => Some(format!("ralph agent install {name}")),
            Self::Agent { .. } => Some("ralph agent ls".to_owned()),
            Self::Grant { .. } => Some("ralph secret ls".to_owned()),
            Self::Profile { .. } => {
                Some("choose another with `--profile NAME`, or correct it in `models.yaml`".to_owned())
            }
            Self::Unpriced { .. } => Some(
                "cap the tokens with `--max-tokens 2000000`, or set the price: ralph profile prices --import FILE"
                    .to_owned(),
            ),
            Self::CannotResume { hint, .. } | Self::CannotAdopt { hint, .. } | Self::NoReceipt { hint, .. } => {
                Some(hint.clone())
            }
            Self::BaselineRefused { run, .. } => Some(format!(
                "ralph edit-task {run} FILE with a proof that fails until its box is done, then ralph resume {run}"
            )),
            Self::Refused(_) | Self::CloneUnusable { .. } | Self::Random => None,
        }
    }

    /// Returns the exit code of a command that fails with this error.
    pub fn exit(&self) -> RalphExitCode {
        match self {
            Self::NoRun { .. }
            | Self::Ambiguous { .. }
            | Self::Refused(_)
            | Self::Profile { .. }
            | Self::Unpriced { .. }
            | Self::PlaintextKey { .. }
            | Self::Agent { .. }
            | Self::ControlRefused { .. }
            | Self::NoReceipt { .. }
            | Self::CannotRewind { .. }
            | Self::BaselineRefused { .. }
            | Self::CannotAdopt { .. }
            | Self::NotRunning { .. }
            | Self::Sandbox(ralph_sandbox::Error::Gone { .. } | ralph_sandbox::Error::Name { .. }) => {
                RalphExitCode::Usage
            }
            Self::Git(error) => error.exit(),
            Self::Secret(error) => error.exit(),
            Self::NoKey { .. }
            | Self::NoSecret { .. }
            | Self::Grant { .. }
            | Self::ForeignSubscription { .. }
            | Self::ShortSecret { .. } => RalphExitCode::Auth,
            Self::NoBackend { .. } | Self::Sandbox(_) => RalphExitCode::NotReady,
            Self::File { .. }
            | Self::Proposals { .. }
            | Self::Locked { .. }
            | Self::BadEvent { .. }
            | Self::BadHistory { .. }
            | Self::CloneUnusable { .. }
            | Self::BadReceipt(_)
            | Self::MissingCommit { .. }
            | Self::CannotResume { .. }
            | Self::Random => RalphExitCode::Failed,
        }
    }
}

/// Why an agent that is not installed cannot be used.
pub(crate) const NOT_INSTALLED: &str = "it is not installed";

fn no_run(wanted: &str) -> String {
    match wanted {
        "@" => "there are no runs yet".to_owned(),
        _ => format!("there is no run `{wanted}`"),
    }
}

/// Attaches the path to an I/O error.
pub(crate) fn file_error(doing: &'static str, path: &std::path::Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { doing, path, source }
}
