//! Creates, opens and removes sandboxes: lease the egress, create the sandbox, install the grant, and undo all of it
//! when a step fails.
//!
//! What is put into a sandbox (a commit, files of a run) is not here: that differs for every caller.

use std::sync::Arc;

use ralph_core::event::PinnedResources;
use ralph_sandbox::{Backend, Error as SandboxError, Sandbox, SandboxLimits, SandboxNetwork, SandboxSpec};

use crate::egress::{self, EgressAvailability, EgressLease, EgressRequest, ModelAccess, SandboxGrant};
use crate::error::Error;
use crate::host_environment::HostContext;
use crate::store::make_private_dirs;

/// Describes a sandbox to create.
#[derive(Debug)]
pub struct SandboxRequest<'a> {
    pub backend: &'a dyn Backend,
    /// The network and the policy label are set from the egress request.
    pub spec: SandboxSpec,
    /// `None` for a sandbox without network.
    pub egress: Option<EgressRequest>,
}

/// A sandbox with its grant.
#[derive(Debug)]
pub struct GrantedSandbox {
    pub sandbox: Arc<dyn Sandbox>,
    /// The egress lease; dropping it revokes the grant.
    pub lease: Option<EgressLease>,
    /// How programs inside reach the models of profiles.
    pub model_access: Vec<ModelAccess>,
}

impl GrantedSandbox {
    /// Returns the sandbox alone; its lease ends with it.
    pub fn into_sandbox(self) -> Arc<dyn Sandbox> {
        match self.lease {
            Some(lease) => egress::hold_lease(self.sandbox, lease),
            None => self.sandbox,
        }
    }
}

/// Returns the limits of a sandbox.
pub fn sandbox_limits(asked: PinnedResources) -> SandboxLimits {
    SandboxLimits { memory: asked.memory, cpus: asked.cpus, disk: asked.disk, pids: asked.pids }
}

/// Creates a sandbox and installs its grant; a sandbox whose grant cannot be installed is removed again.
pub async fn create(host: &HostContext, request: SandboxRequest<'_>) -> Result<GrantedSandbox, Error> {
    let SandboxRequest { backend, mut spec, egress } = request;
    let Some(egress) = egress else {
        let sandbox = backend.create(&spec).await?;
        return Ok(GrantedSandbox { sandbox, lease: None, model_access: Vec::new() });
    };
    let support = backend.capabilities().egress;
    let availability = egress.availability;
    let (grant, lease) = lease_egress(host, &spec.name, egress)?;
    let needed = egress::network_for_grant(&grant.terms, &mut spec.labels);
    spec.network = match availability {
        // The user may allow a host later, and until then the refusals are worth knowing.
        EgressAvailability::Always if support.is_available() => support.limit_network(SandboxNetwork::Transparent),
        _ => support.limit_network(needed),
    };
    let made = backend.create(&spec).await?;
    match install(backend, &grant, Arc::clone(&made), lease).await {
        Ok(granted) => Ok(granted),
        Err(error) => {
            discard(&*made).await;
            Err(error)
        }
    }
}

/// Opens an existing sandbox; if egress is requested, it is started and gets a new grant.
pub async fn open(
    host: &HostContext,
    backend: &dyn Backend,
    id: &str,
    egress: Option<EgressRequest>,
) -> Result<GrantedSandbox, Error> {
    let Some(egress) = egress else {
        let sandbox = backend.open(id).await?;
        return Ok(GrantedSandbox { sandbox, lease: None, model_access: Vec::new() });
    };
    let (grant, lease) = lease_egress(host, id, egress)?;
    let opened = backend.open(id).await?;
    opened.start().await?;
    install(backend, &grant, opened, lease).await
}

/// Removes a sandbox that is no longer needed; what remains is removed when the next one of its name is created.
pub async fn discard(sandbox: &dyn Sandbox) {
    match sandbox.destroy().await {
        Ok(()) | Err(SandboxError::Gone { .. }) => (),
        Err(error) => tracing::warn!(%error, sandbox = sandbox.id(), "a sandbox could not be removed"),
    }
}

/// Leases the egress before the sandbox exists, so that the proxy serves its first command under this grant.
fn lease_egress(
    host: &HostContext,
    sandbox: &str,
    request: EgressRequest,
) -> Result<(SandboxGrant, EgressLease), Error> {
    let grant = egress::build_grant(host, sandbox, &request)?;
    let lease = match request.audit_folder {
        Some(folder) => {
            make_private_dirs(folder.path())?;
            host.egress().lease_with_audit_folder(sandbox, grant.terms.clone(), folder)
        }
        None => host.egress().lease(sandbox, grant.terms.clone()),
    };
    Ok((grant, lease))
}

async fn install(
    backend: &dyn Backend,
    grant: &SandboxGrant,
    sandbox: Arc<dyn Sandbox>,
    lease: EgressLease,
) -> Result<GrantedSandbox, Error> {
    let url = sandbox.egress_url();
    let sandbox = grant.install(&backend.capabilities(), sandbox).await?;
    let model_access = url.map(|url| grant.model_access(&url)).unwrap_or_default();
    Ok(GrantedSandbox { sandbox, lease: Some(lease), model_access })
}
