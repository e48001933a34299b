//! Errors about toolchains that the configuration names. Toolchains that are only found on the `PATH` never fail:
//! problems are noted.

use std::path::PathBuf;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ToolchainError {
    #[error("the home folder `{path}` is not an absolute path to a directory")]
    Home { path: PathBuf },
    #[error("`{name}` is not the name of a toolchain")]
    Unknown { name: String, meant: Option<&'static str> },
    #[error("the toolchain `{name}` is configured but not installed on this host")]
    Missing { name: String },
    #[error("the toolchain folder `{path}` is not a directory")]
    NoDirectory { path: PathBuf },
    #[error("the toolchain folder `{path}` cannot be shown: {why}")]
    Refused { path: PathBuf, why: &'static str },
}

impl ToolchainError {
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Home { .. } => Some("set `HOME` to your home folder".to_owned()),
            Self::Unknown { meant: Some(meant), .. } => Some(format!("did you mean `{meant}`?")),
            Self::Unknown { meant: None, .. } => {
                Some(format!("known toolchains: {}", super::tool_names::known().join(", ")))
            }
            Self::Missing { name } => Some(format!("install `{name}`, or remove it from `sandbox.toolchains`")),
            Self::NoDirectory { .. } => Some("name an existing directory in `sandbox.toolchains`".to_owned()),
            Self::Refused { .. } => {
                Some("name a directory that holds only the toolchain in `sandbox.toolchains`".to_owned())
            }
        }
    }
}
