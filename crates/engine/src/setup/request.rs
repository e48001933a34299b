//! Takes a run request through its three steps: load, lint, resolve. The caller can report after each.

use std::path::PathBuf;

use ralph_core::lint::{LintFinding, has_errors};
use ralph_core::policy::PolicyMode;

use super::run_spec::resolve_policy;
use super::{LoadedTask, RunOverrides, SetupError, TaskInput, lint_task, load_task, resolve_run, task_errors};
use crate::egress::{SecretGrant, check_grantable};
use crate::error::Error;
use crate::host_environment::HostContext;
use crate::run::{RunSpec, check_start};

/// A requested run, before anything is read or checked.
#[derive(Debug, Clone)]
pub struct RunRequest {
    /// Absolute. Relative paths start here, and the repository is the one around it unless the task says otherwise.
    pub dir: PathBuf,
    pub task: TaskInput,
    pub overrides: RunOverrides,
}

/// A request whose task was read and whose secrets may be granted.
#[derive(Debug)]
pub struct LoadedRequest {
    task: LoadedTask,
    overrides: RunOverrides,
    granted_hosts: Vec<String>,
}

/// A request whose task was linted; only one without errors can be resolved.
#[derive(Debug)]
pub struct LintedRequest {
    task: LoadedTask,
    overrides: RunOverrides,
    findings: Vec<LintFinding>,
}

impl RunRequest {
    /// Checks what can be checked without the task, then reads the task.
    pub async fn load(self, host: &HostContext) -> Result<LoadedRequest, SetupError> {
        let Self { dir, task, mut overrides } = self;
        let grants = check_flags(host, &overrides)?;
        let task = load_task(host, &dir, &task).await?;
        if task.source.is_none() {
            return Err(SetupError::NoTask);
        }
        let mut granted_hosts = Vec::new();
        if !grants.is_empty() && overrides.network != Some(PolicyMode::Deny) {
            let policy = resolve_policy(host, &task, &overrides)?;
            let unreachable = policy.unreachable_hosts(grants.iter().map(|grant| grant.host.as_str()));
            granted_hosts.extend(unreachable.into_iter().map(str::to_owned));
            overrides.allow_hosts.extend_from_slice(&granted_hosts);
        }
        Ok(LoadedRequest { task, overrides, granted_hosts })
    }
}

impl LoadedRequest {
    /// Returns the hosts that are allowed only because a secret is granted to them.
    pub fn granted_hosts(&self) -> &[String] {
        &self.granted_hosts
    }

    pub async fn lint(self, host: &HostContext) -> Result<LintedRequest, SetupError> {
        let findings = lint_task(host, &self.task, &self.overrides).await?;
        Ok(LintedRequest { task: self.task, overrides: self.overrides, findings })
    }
}

impl LintedRequest {
    pub fn task(&self) -> &LoadedTask {
        &self.task
    }

    pub fn findings(&self) -> &[LintFinding] {
        &self.findings
    }

    /// Resolves the run's specification. A missing key or backend is an error here, before anything is created.
    pub async fn resolve(self, host: &HostContext) -> Result<RunSpec, SetupError> {
        if has_errors(&self.findings) {
            return Err(task_errors(&self.task, &self.findings));
        }
        let spec = resolve_run(host, &self.task, &self.overrides)?;
        check_models(host, &spec).await?;
        Ok(spec)
    }
}

/// Checks what `ralph run` checks of a task that has no lint errors. Returns what is missing on this machine, which is
/// not the task's fault: a key.
pub async fn check_startable(
    host: &HostContext,
    task: &LoadedTask,
    overrides: &RunOverrides,
) -> Result<Option<Error>, SetupError> {
    check_flags(host, overrides)?;
    let spec = resolve_run(host, task, overrides)?;
    let checked = match check_models(host, &spec).await {
        Ok(()) => check_start(host, &spec).await.map(drop),
        Err(error) => Err(error),
    };
    match checked {
        Ok(()) => Ok(None),
        Err(error @ Error::NoKey { .. }) => Ok(Some(error)),
        Err(error) => Err(error.into()),
    }
}

/// Checks that the models of a run can be called. If an agent calls them, `begin` checks that it can.
async fn check_models(host: &HostContext, spec: &RunSpec) -> Result<(), Error> {
    host.backend(&spec.backend)?;
    if spec.agent.is_none() {
        for profile in std::iter::once(&spec.profiles.default).chain(&spec.profiles.fallback) {
            host.model(profile).await?;
        }
    }
    Ok(())
}

/// Checks what the flags alone decide, and returns the secrets they grant.
fn check_flags(host: &HostContext, overrides: &RunOverrides) -> Result<Vec<SecretGrant>, SetupError> {
    if overrides.network == Some(PolicyMode::Deny) && !overrides.allow_hosts.is_empty() {
        return Err(SetupError::AllowedHostsOfNoNetwork);
    }
    check_secret_grants(host, &overrides.secret_grants)
}

/// Parses secret grants and refuses those whose secret is missing or may not go to that host.
fn check_secret_grants(host: &HostContext, texts: &[String]) -> Result<Vec<SecretGrant>, SetupError> {
    let mut grants = Vec::new();
    for text in texts {
        let grant: SecretGrant = text.parse()?;
        match host.secrets().find(&grant.secret)? {
            Some(secret) => check_grantable(&secret, &[&grant.host])?,
            None => return Err(Error::NoSecret { name: grant.secret }.into()),
        }
        grants.push(grant);
    }
    Ok(grants)
}
