//! What can go wrong in a sandbox, and what to do about it.

use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("there is no sandbox `{id}`")]
    Gone { id: String },
    #[error("a sandbox named `{id}` exists already")]
    Exists { id: String },
    #[error("could not start `{program}` in sandbox `{id}`")]
    Spawn { id: String, program: String, source: io::Error },
    #[error("could not {doing} `{path}` in sandbox `{id}`")]
    File { id: String, doing: &'static str, path: PathBuf, source: io::Error },
    #[error("refused `{path}`: {why}")]
    Refused { path: PathBuf, why: &'static str },
    #[error("`{path}` is larger than {cap} bytes")]
    TooLarge { path: PathBuf, cap: u64 },
    #[error("could not {doing} the sandbox folder `{path}`")]
    Host { doing: &'static str, path: PathBuf, source: io::Error },
}

impl Error {
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Gone { .. } => Some("ralph resume --recreate RUN".to_owned()),
            Self::Exists { id } => Some(format!("ralph sandbox rm {id}")),
            Self::Spawn { program, .. } => Some(format!("check that `{program}` is installed where the sandbox runs")),
            Self::Refused { .. } => Some("use a plain path inside the repository".to_owned()),
            Self::File { .. } | Self::TooLarge { .. } | Self::Host { .. } => None,
        }
    }
}
