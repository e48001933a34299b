//! Defines errors around a secret. No message ever contains a value.

use std::io;
use std::path::PathBuf;

use ralph_core::exit_code::RalphExitCode;
use ralph_core::secret::{BadCommand, ProbeUnavailable};

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("could not {doing} `{path}`")]
    File { doing: &'static str, path: PathBuf, source: io::Error },
    /// `remedy` is a command to paste.
    #[error("`{path}` is not private: {why}")]
    NotPrivate { path: PathBuf, why: &'static str, remedy: String },
    #[error("`{path}` holds no text that could be a secret: {why}")]
    Unreadable { path: PathBuf, why: String, name: String },
    #[error("`{path}` was written by a newer ralph")]
    Newer { path: PathBuf },
    #[error("`{path}` is damaged")]
    Damaged { path: PathBuf, source: serde_json::Error },
    #[error("the keyring holds `{name}`, and `{program}` is not installed")]
    NoKeyring { name: String, program: &'static str },
    #[error("this machine has no keyring program: `{program}` is not on PATH")]
    NoProgram { name: String, program: &'static str },
    #[error("the keyring did not {doing} `{name}`: {why}")]
    Keyring { doing: &'static str, name: String, why: String },
    #[error("`{name}` is too long for the keyring of this system")]
    TooLong { name: String },
    #[error("the command of `{name}` is wrong")]
    BadCommand { name: String, source: BadCommand },
    #[error("the command of `{name}` returned no secret: {why}")]
    Command { name: String, why: String },
    #[error("`{name}` of the environment is a `cmd://` line, and those are taken from your own secret files only")]
    CommandInEnvironment { name: String },
    #[error("a `cmd://` line is kept in a file, not in the keyring")]
    CommandInKeyring { name: String },
    #[error("there is no secret `{name}`")]
    Missing { name: String },
    #[error("`{name}` is set in {place}, which ralph does not change")]
    NotOurs { name: String, place: &'static str },
    #[error("`{host}` refused `{name}` ({status}); nothing was stored")]
    Refused { name: String, host: String, status: u16 },
    #[error("`{host}` answered {status}, which does not say whether `{name}` is good; nothing was stored")]
    Inconclusive { name: String, host: String, status: u16 },
    #[error("`{host}` could not be reached, so `{name}` could not be tried; nothing was stored")]
    Unreachable { name: String, host: String, source: reqwest::Error },
    #[error("`{name}` is not a private key in PEM: {why}; nothing was stored")]
    Pem { name: String, why: &'static str },
    #[error(transparent)]
    NoProbe(#[from] ProbeUnavailable),
    #[error("could not set up the HTTP client")]
    Client(#[source] crate::model::Error),
}

impl Error {
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::File { .. } => Some(
                "check that the folder exists and that you can write to it; `ralph config path` lists ralph's own"
                    .to_owned(),
            ),
            Self::NotPrivate { remedy, .. } => Some(remedy.clone()),
            Self::Unreadable { name, .. }
            | Self::NoKeyring { name, .. }
            | Self::Command { name, .. }
            | Self::Refused { name, .. } => Some(format!("ralph secret set {name}")),
            Self::Newer { .. } => Some("update ralph".to_owned()),
            Self::Damaged { path, .. } => {
                Some(format!("rm {}; it holds no secret, only when each was set", path.display()))
            }
            Self::NoProgram { name, .. }
            | Self::Keyring { name, .. }
            | Self::TooLong { name }
            | Self::CommandInKeyring { name } => Some(format!("ralph secret set {name} --source file")),
            Self::BadCommand { source, .. } => source.hint(),
            Self::CommandInEnvironment { name } => {
                Some(format!("unset {name}, and give the line to: ralph secret set {name}"))
            }
            Self::Missing { .. } => Some("ralph secret ls".to_owned()),
            Self::NotOurs { name, .. } => Some(format!("unset {name}, or remove its line from `.env`")),
            Self::Unreachable { source, .. } if crate::model::is_untrusted_certificate(source) => {
                crate::model::ModelErrorClass::Untrusted.hint().map(str::to_owned)
            }
            Self::Inconclusive { name, .. } | Self::Unreachable { name, .. } => {
                Some(format!("try again later, or store it untried: ralph secret set {name} --no-validate"))
            }
            Self::Pem { name, .. } => Some(format!("ralph secret set {name} < key.pem")),
            Self::NoProbe(error) => error.hint(),
            Self::Client(_) => Some("ralph doctor".to_owned()),
        }
    }

    /// Returns the exit code of a command that fails with this error.
    pub fn exit(&self) -> RalphExitCode {
        match self {
            Self::Refused { .. } | Self::Missing { .. } | Self::Command { .. } | Self::Keyring { .. } => {
                RalphExitCode::Auth
            }
            Self::NoKeyring { .. } | Self::NoProgram { .. } | Self::Client(_) => RalphExitCode::NotReady,
            Self::NotPrivate { .. }
            | Self::Unreadable { .. }
            | Self::TooLong { .. }
            | Self::BadCommand { .. }
            | Self::CommandInEnvironment { .. }
            | Self::CommandInKeyring { .. }
            | Self::NotOurs { .. }
            | Self::Pem { .. }
            | Self::NoProbe(_) => RalphExitCode::Usage,
            Self::File { .. }
            | Self::Newer { .. }
            | Self::Damaged { .. }
            | Self::Inconclusive { .. }
            | Self::Unreachable { .. } => RalphExitCode::Failed,
        }
    }
}

/// Attaches the path to an I/O error.
pub(super) fn file(doing: &'static str, path: &std::path::Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { doing, path, source }
}
