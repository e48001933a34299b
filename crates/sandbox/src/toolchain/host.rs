//! The host's home, `PATH` and variables, read once by the caller.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};

/// The home folder of the sandbox.
pub const SANDBOX_HOME: &str = "/home/agent";

/// The input of the search.
#[derive(Clone, Copy)]
pub struct ToolchainHost<'a> {
    pub home: &'a Path,
    pub path: &'a OsStr,
    /// Returns the value of a variable.
    pub env: &'a dyn Fn(&str) -> Option<OsString>,
}

impl ToolchainHost<'_> {
    /// Returns the directory that a variable names; a relative or empty one counts as not set.
    pub(super) fn dir_var(&self, variable: &str) -> Option<PathBuf> {
        (self.env)(variable).map(PathBuf::from).filter(|dir| dir.is_absolute())
    }

    pub(super) fn text_var(&self, variable: &str) -> Option<String> {
        (self.env)(variable).and_then(|value| value.into_string().ok()).filter(|value| !value.is_empty())
    }
}

impl fmt::Debug for ToolchainHost<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The variables may hold secrets.
        f.debug_struct("ToolchainHost").field("home", &self.home).field("path", &self.path).finish_non_exhaustive()
    }
}

/// Host paths with a special meaning; tests replace them.
#[derive(Debug, Clone)]
pub(super) struct HostPaths {
    pub(super) system: Vec<PathBuf>,
    pub(super) opt: PathBuf,
    pub(super) nix_store: PathBuf,
    /// Where the users' homes are.
    pub(super) homes: PathBuf,
}

impl Default for HostPaths {
    fn default() -> Self {
        Self {
            system: ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64"].map(PathBuf::from).to_vec(),
            opt: PathBuf::from("/opt"),
            nix_store: PathBuf::from("/nix/store"),
            homes: PathBuf::from("/home"),
        }
    }
}

impl HostPaths {
    /// Returns whether this path is visible anyway, as part of the host's `/usr`.
    pub(super) fn is_system(&self, path: &Path) -> bool {
        self.system.iter().any(|system| path.starts_with(system))
    }
}
