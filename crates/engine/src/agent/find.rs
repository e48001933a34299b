//! Finds an agent's program.

use std::path::PathBuf;

use ralph_core::agent::Agent;
use ralph_sandbox::HostLayer;

use super::error::Error;
use super::{path_search, store};
use crate::host_environment::HostContext;

/// Where a program came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AgentOrigin {
    /// Fetched by `ralph agent install`.
    Installed,
    /// Found on the user's `PATH`.
    Path,
}

/// An agent's program, and what a sandbox must see to run it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentProgram {
    /// The program as sandboxes see it.
    pub program: PathBuf,
    /// The same program on the host, for a backend without host layers.
    pub on_host: PathBuf,
    /// To be added to [`ralph_sandbox::SandboxSpec::layers`]; `None` if every sandbox sees it anyway.
    pub layer: Option<HostLayer>,
    /// Variables its commands need.
    pub env: Vec<(String, String)>,
    /// `None` if no file states it.
    pub version: Option<String>,
    pub from: AgentOrigin,
}

/// Finds an agent: in ralph's store, the newest version first, then on the host's `PATH`.
pub fn find(host: &HostContext, agent: &dyn Agent) -> Result<Option<AgentProgram>, Error> {
    if let Some(found) = store::list(&host.home, agent).into_iter().next() {
        return Ok(Some(found));
    }
    path_search::find(host.env.get("PATH").unwrap_or(""), agent)
}
