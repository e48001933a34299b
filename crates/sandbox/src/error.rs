//! Defines the errors of sandboxes and the hints that say what to do about them.

use std::io;
use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("there is no sandbox `{id}`")]
    Gone { id: String },
    #[error("a sandbox named `{id}` already exists")]
    Exists { id: String },
    #[error("`{name}` cannot be the name of a sandbox")]
    Name { name: String },
    #[error("could not start `{program}` in sandbox `{id}`")]
    Spawn { id: String, program: String, source: io::Error },
    #[error("lost track of `{program}` in sandbox `{id}` before it ended")]
    Wait { id: String, program: String, source: io::Error },
    #[error("{count} processes of sandbox `{id}` did not end")]
    Unkillable { id: String, count: usize },
    #[error("could not {doing} `{path}` in sandbox `{id}`")]
    File { id: String, doing: &'static str, path: PathBuf, source: io::Error },
    #[error("refused `{path}`: {why}")]
    Refused { path: PathBuf, why: &'static str },
    #[error("`{path}` is larger than {cap} bytes")]
    TooLarge { path: PathBuf, cap: u64 },
    #[error("`{path}` has more than {cap} entries")]
    TooMany { path: PathBuf, cap: usize },
    #[error("could not {doing} the sandbox folder `{path}`")]
    Host { doing: &'static str, path: PathBuf, source: io::Error },
    #[error("could not {doing} the host's file `{path}`")]
    HostFile { doing: &'static str, path: PathBuf, source: io::Error },
    #[error("could not build sandbox `{id}`: the step `{step}` failed")]
    Cage { id: String, step: String, source: io::Error },
    #[error("sandbox `{id}` is used by another process")]
    Busy { id: String },
    #[error("could not use the image of a sandbox")]
    Image { source: Box<crate::image::ImageError> },
    #[error("could not make the toolchains available in a sandbox")]
    Toolchains { source: crate::toolchain::ToolchainError },
    #[error("the {backend} backend cannot {what}")]
    Unsupported { backend: &'static str, what: &'static str },
    #[error("there is no snapshot `{name}`")]
    NoSnapshot { name: String },
    #[error("`{path}` is written in format {found}; this ralph knows formats up to {known}")]
    Format { path: PathBuf, found: u64, known: u64 },
}

impl Error {
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Gone { .. } | Self::NoSnapshot { .. } => Some("ralph sandbox ls".to_owned()),
            Self::Exists { id } | Self::Unkillable { id, .. } => Some(format!("ralph sandbox rm {id}")),
            Self::Name { .. } => {
                Some("use 1 to 63 letters, digits, `.`, `_` or `-`, starting with a letter or digit".to_owned())
            }
            Self::Spawn { program, .. } => Some(format!("check that `{program}` is installed where the sandbox runs")),
            Self::Refused { .. } => Some("use a plain path inside the repository".to_owned()),
            Self::Format { .. } => Some("a newer ralph made this sandbox: use that version, or upgrade".to_owned()),
            Self::Cage { .. } => Some("run `ralph doctor` to see why and what to do".to_owned()),
            Self::Image { source } => source.hint(),
            Self::Toolchains { source } => source.hint(),
            Self::Busy { id } => Some(format!("ralph sandbox stop {id}")),
            Self::Unsupported { .. } => Some("use the embedded backend".to_owned()),
            Self::File { .. }
            | Self::TooLarge { .. }
            | Self::TooMany { .. }
            | Self::Host { .. }
            | Self::HostFile { .. }
            | Self::Wait { .. } => None,
        }
    }
}
