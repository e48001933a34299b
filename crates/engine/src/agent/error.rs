//! Defines errors around an agent's program.

use std::io;
use std::path::PathBuf;

use ralph_core::exit_code::RalphExitCode;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("could not {doing} `{path}`")]
    File { doing: &'static str, path: PathBuf, source: io::Error },
    #[error("`{agent}` cannot be fetched by ralph")]
    NoPackage { agent: String, by_hand: String },
    #[error("`{agent}` cannot be fetched in a cage here")]
    NoCage { agent: String, program: String },
    #[error("`{version}` is not the version of a package")]
    Version { version: String },
    #[error("`{path}` cannot be shown in a sandbox: {why}")]
    NotMountable { agent: String, path: PathBuf, why: &'static str },
    #[error("another process is fetching `{agent}`")]
    Busy { agent: String },
    #[error("`{package}` could not be fetched: {why}")]
    Fetch { package: String, why: String, refused: Option<String> },
    #[error("the fetched package `{package}` cannot be used: {why}")]
    Package { package: String, why: String },
    #[error("the sandbox for fetching `{agent}` could not be used")]
    Sandbox { agent: String, source: Box<crate::Error> },
}

impl Error {
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoPackage { by_hand, .. } => Some(by_hand.clone()),
            Self::NoCage { program, .. } => Some(format!("put `{program}` on PATH; `ralph agent ls` shows it then")),
            Self::Version { .. } => Some("write it as the registry does, for example `--version 1.2.3`".to_owned()),
            Self::NotMountable { agent, .. } => Some(format!("ralph agent install {agent}")),
            Self::Fetch { refused: Some(place), .. } => {
                Some(format!("if this is your registry, allow it: add `--allow-host {place}`"))
            }
            Self::Fetch { refused: None, .. } => {
                Some("`ralph doctor` checks this machine; a registry of your own needs `--allow-host`".to_owned())
            }
            Self::Package { .. } => Some("try another with `--version`".to_owned()),
            Self::Sandbox { source, .. } => source.hint(),
            Self::Busy { .. } => Some("ralph agent ls".to_owned()),
            Self::File { .. } => Some(
                "check that the folder exists and that you can write to it; `ralph config path` lists ralph's own"
                    .to_owned(),
            ),
        }
    }

    /// Returns the exit code of a command that fails with this error.
    pub fn exit(&self) -> RalphExitCode {
        match self {
            Self::NoPackage { .. } | Self::Version { .. } => RalphExitCode::Usage,
            Self::NoCage { .. } | Self::NotMountable { .. } => RalphExitCode::NotReady,
            Self::Sandbox { source, .. } => source.exit(),
            Self::File { .. } | Self::Busy { .. } | Self::Fetch { .. } | Self::Package { .. } => RalphExitCode::Failed,
        }
    }
}

/// Attaches the path to an I/O error.
pub(super) fn file(doing: &'static str, path: &std::path::Path) -> impl FnOnce(io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::File { doing, path, source }
}
