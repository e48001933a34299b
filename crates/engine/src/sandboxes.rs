//! Makes, opens and removes sandboxes: agree on the egress, make the sandbox, install what was granted, and undo all of
//! it when a step fails.
//!
//! What is put into a sandbox (a commit, files of a run) is not here: that differs for everyone who needs one.

use std::sync::Arc;

use ralph_sandbox::{Backend, Error as SandboxError, Sandbox, SandboxNetwork, SandboxSpec};

use crate::egress::{self, EgressAvailability, EgressLease, EgressRequest, ModelAccess, SandboxGrant};
use crate::error::{Error, file_error};
use crate::host::HostContext;

/// What a sandbox is to be.
#[derive(Debug)]
pub struct SandboxRequest<'a> {
    pub backend: &'a dyn Backend,
    /// Its network, and the label with its policy, are set by what it asks of the egress.
    pub spec: SandboxSpec,
    /// `None` for a sandbox that reaches nothing.
    pub egress: Option<EgressRequest>,
}

/// A sandbox with what it was granted.
#[derive(Debug)]
pub struct GrantedSandbox {
    pub sandbox: Arc<dyn Sandbox>,
    /// What was agreed on for its egress; dropping it revokes what was granted.
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

/// Makes a sandbox and installs what it was granted; one that cannot have it is removed again.
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
        // A person may allow something later, and until then the refusals are worth knowing.
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

/// Opens a sandbox that exists; one that asks for egress is started and gets what it is granted from now on.
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

/// Removes a sandbox that served its purpose; what stays is removed when the next one of its name is made.
pub async fn discard(sandbox: &dyn Sandbox) {
    match sandbox.destroy().await {
        Ok(()) | Err(SandboxError::Gone { .. }) => (),
        Err(error) => tracing::warn!(%error, sandbox = sandbox.id(), "a sandbox could not be removed"),
    }
}

/// Agrees on the egress before there is a sandbox: its first command is served on these terms.
fn lease_egress(
    host: &HostContext,
    sandbox: &str,
    request: EgressRequest,
) -> Result<(SandboxGrant, EgressLease), Error> {
    let grant = egress::build_grant(host, sandbox, &request)?;
    let lease = match request.audit_folder {
        Some(folder) => {
            std::fs::create_dir_all(folder.path()).map_err(file_error("make the audit folder", folder.path()))?;
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
