//! Where an agent's program is.

use std::path::PathBuf;

use ralph_core::agent::Agent;
use ralph_sandbox::HostLayer;

use super::error::Error;
use super::{path_search, store};
use crate::host::HostContext;

/// Where a program came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentOrigin {
    /// `ralph agent install` fetched it.
    Installed,
    /// The user has it.
    Path,
}

/// An agent's program, and what a sandbox has to be shown for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentProgram {
    /// The program as sandboxes see it.
    pub program: PathBuf,
    /// The same on the host, for a backend that shows no layers of the host.
    pub on_host: PathBuf,
    /// To be added to [`ralph_sandbox::Spec::layers`]; `None` where every sandbox sees it anyway.
    pub layer: Option<HostLayer>,
    /// Variables its commands need.
    pub env: Vec<(String, String)>,
    /// `None` where no file says it.
    pub version: Option<String>,
    pub from: AgentOrigin,
}

/// Finds an agent: on the shelf, the newest version first, then on the host's `PATH`.
pub fn find(host: &HostContext, agent: &dyn Agent) -> Result<Option<AgentProgram>, Error> {
    if let Some(found) = store::list(&host.home, agent).into_iter().next() {
        return Ok(Some(found));
    }
    path_search::find(host.env.get("PATH").unwrap_or(""), agent)
}
