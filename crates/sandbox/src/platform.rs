//! Provides what depends on the operating system: the backend that needs no other program, the name of the default
//! backend, and the entry point of the processes that such a backend starts from the running program.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use crate::{Backend, EgressServer};

/// The name of the backend that is used when the user names none.
pub const DEFAULT_BACKEND: &str = if cfg!(target_os = "linux") { "embedded" } else { "local" };

/// The parts of the user's environment that locate toolchains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostUser {
    pub home: PathBuf,
    pub path: OsString,
    pub env: BTreeMap<String, String>,
}

/// How the backend of the operating system is set up.
#[derive(Debug, Clone, Default)]
pub struct PlatformOptions {
    /// Where sandboxes, snapshots and images are stored.
    pub dir: PathBuf,
    /// Where to look for the user's toolchains; without it none are visible inside.
    pub user: Option<HostUser>,
    /// Further host directories to mount read-only at their host paths.
    pub binds: Vec<PathBuf>,
    /// Serves the egress of sandboxes.
    pub egress_server: Option<Arc<dyn EgressServer>>,
}

/// Returns the backend that isolates with this operating system alone, if there is one.
#[cfg(target_os = "linux")]
pub fn backend(options: PlatformOptions) -> Option<Arc<dyn Backend>> {
    let PlatformOptions { dir, user, binds, egress_server } = options;
    let options = crate::embedded::EmbeddedOptions {
        dir,
        user,
        binds,
        egress_server,
        ..crate::embedded::EmbeddedOptions::default()
    };
    Some(Arc::new(crate::embedded::EmbeddedBackend::new(options)))
}

/// Returns the backend that isolates with this operating system alone, if there is one.
#[cfg(not(target_os = "linux"))]
pub fn backend(_options: PlatformOptions) -> Option<Arc<dyn Backend>> {
    None
}

/// Becomes a helper process of a sandbox, if this process was started as one. Must be the first call in `main`, before
/// any thread starts.
pub fn helper_entry() -> Option<ExitCode> {
    #[cfg(target_os = "linux")]
    return crate::embedded::launcher_entry();
    #[cfg(not(target_os = "linux"))]
    return None;
}
