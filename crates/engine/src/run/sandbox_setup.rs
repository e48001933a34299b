//! Creates the sandboxes of a run and seeds them with a commit.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use ralph_core::commit_sha::CommitSha;
use ralph_core::event::{Event, EventLogLevel, RunStart};
use ralph_core::lint::Severity;
use ralph_core::{identifiers, task};
use ralph_sandbox::{Backend, Sandbox, SandboxLabel, SandboxSpec};

use super::egress::egress_request;
use super::egress_events::EgressEvents;
use super::model_clients::ModelState;
use super::run_context::RunContext;
use super::work_sandbox::WorkSandbox;
use crate::egress::{EgressAvailability, EgressRequest};
use crate::error::Error;
use crate::git::in_sandbox::StateFiles;
use crate::git::{self, BareRepo};
use crate::host_environment::HostContext;
use crate::sandbox_lifecycle::{self, SandboxRequest};
use crate::store::write_atomic;

/// The largest task file that is read.
const TASK_FILE_CAP: usize = 4 << 20;

/// What a sandbox is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SandboxRole {
    Work,
    Proof,
    /// A proof that is not expected to pass yet; the hosts it cannot reach are reported.
    Baseline,
}

impl SandboxRole {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Work => "work",
            Self::Proof | Self::Baseline => "proof",
        }
    }
}

/// Creates the work sandbox of a run.
#[derive(Debug)]
pub(super) struct SandboxSetup<'a> {
    pub(super) run: &'a mut RunContext,
    pub(super) work: &'a mut WorkSandbox,
    pub(super) models: &'a ModelState,
}

impl SandboxSetup<'_> {
    pub(super) async fn prepare(&mut self) -> Result<(), Error> {
        let started = self.run.state().started.clone();
        let start = started.start_commit.clone();
        self.create(&started, &start, &start, Vec::new()).await
    }

    /// Creates the sandbox with the branch at `head`, replacing an older one.
    pub(super) async fn create(
        &mut self,
        started: &RunStart,
        start: &CommitSha,
        head: &CommitSha,
        reclaim: Vec<String>,
    ) -> Result<(), Error> {
        let backend = self.run.host.backend(&started.backend)?;
        let name = sandbox_name(&*backend, started, SandboxRole::Work).await?;
        let spec = sandbox_spec(&self.run.host, started, name, SandboxRole::Work)?;
        let request = SandboxRequest {
            backend: &*backend,
            spec,
            egress: Some(egress_request(self.run.state(), &self.models.ledger)?),
        };
        let granted = sandbox_lifecycle::create(&self.run.host, request).await?;
        let sandbox = self.work.hold_grant(granted);
        seed_commit(&*sandbox, &self.run.bare, self.run.folder.path(), started, head).await?;
        self.run.files.write_initial(&*sandbox).await?;
        self.work.forget_tree();
        self.work.sandbox = Some(sandbox.clone());
        let verified = verified_in_commit(self.run, head, &reclaim).await?;
        self.run.append(Event::SandboxReady {
            sandbox: sandbox.id().to_owned(),
            backend: started.backend.clone(),
            isolated: backend.capabilities().isolation.is_isolated(),
            start: start.clone(),
            head: head.clone(),
            reclaim,
            verified,
        })
    }
}

/// Returns which of these boxes are ticked in the task file of a commit that was imported: only ralph ticks boxes there.
async fn verified_in_commit(run: &RunContext, head: &CommitSha, boxes: &[String]) -> Result<Vec<String>, Error> {
    if boxes.is_empty() {
        return Ok(Vec::new());
    }
    let bytes = run.bare.odb().file_at(&head.into(), &run.state().started.task_path, TASK_FILE_CAP).await?;
    let ticked = task::ticked_boxes(&String::from_utf8_lossy(&bytes));
    Ok(boxes.iter().filter(|id| ticked.contains(*id)).cloned().collect())
}

pub(super) async fn check_baseline(run: &mut RunContext) -> Result<(), Error> {
    let mut started = run.state().started.clone();
    started.policy = run.state().policy().clone();
    let sha = started.start_commit.clone();
    let report = crate::baseline::check(&run.host, &run.bare, run.folder.path(), &started, &sha).await?;
    let refused = report.findings.iter().find(|finding| finding.severity == Severity::Error);
    let refused = refused.map(|error| error.message.clone());
    EgressEvents { run }.alarm_on_leaks(report.leaked_secrets.clone())?;
    if !report.observed.is_empty() {
        let text = serde_json::to_string(&report.observed).unwrap_or_default();
        write_atomic(&run.folder.observed_path(), run.redactor.redact(&text).as_bytes())?;
    }
    run.append(Event::BaselineChecked { checks: report.lines(), refused })?;
    for finding in report.findings.iter().filter(|finding| finding.severity == Severity::Warning) {
        run.log(EventLogLevel::Warn, finding.message.clone())?;
    }
    Ok(())
}

/// Removes proof sandboxes that a dead process left behind; this run has none in use. One that cannot be removed is
/// replaced when the next one with its name is created.
pub(super) async fn discard_proof_sandboxes(run: &RunContext) {
    let Ok(backend) = run.host.backend(&run.state().started.backend) else { return };
    for other in backend.list().await.unwrap_or_default() {
        let of = |label: &str, value: &str| other.labels.get(label).is_some_and(|found| found == value);
        if of(SandboxLabel::RUN, run.state().id())
            && of(SandboxLabel::ROLE, SandboxRole::Proof.as_str())
            && let Ok(sandbox) = backend.open(&other.id).await
        {
            sandbox_lifecycle::discard(&*sandbox).await;
        }
    }
}

/// Returns the name for a run's sandbox, and removes one of that name that a dead process left behind.
async fn sandbox_name(backend: &dyn Backend, started: &RunStart, role: SandboxRole) -> Result<String, Error> {
    let listed = backend.list().await?;
    let foreign = |wanted: &str| {
        listed.iter().any(|other| other.id == wanted && other.labels.get(SandboxLabel::RUN) != Some(&started.run))
    };
    let agent = match role {
        SandboxRole::Work => started.engine.clone(),
        SandboxRole::Proof | SandboxRole::Baseline => format!("{}-proof", started.engine),
    };
    let name = identifiers::sandbox_name(&agent, &started.branch, &foreign);
    if listed.iter().any(|other| other.id == name) {
        backend.open(&name).await?.destroy().await?;
    }
    Ok(name)
}

/// Returns the spec of a run's sandbox.
fn sandbox_spec(host: &HostContext, started: &RunStart, name: String, role: SandboxRole) -> Result<SandboxSpec, Error> {
    let labels = BTreeMap::from([
        (SandboxLabel::RUN.to_owned(), started.run.clone()),
        (SandboxLabel::ROLE.to_owned(), role.as_str().to_owned()),
        (SandboxLabel::REPO.to_owned(), started.repo.clone()),
        ("ralph.branch".to_owned(), started.branch.to_string()),
        ("ralph.base".to_owned(), started.base_commit.to_string()),
        ("ralph.base-branch".to_owned(), started.base_branch.clone()),
        ("ralph.task".to_owned(), started.task_path.clone()),
    ]);
    let resources = sandbox_lifecycle::sandbox_limits(started.resources);
    let (image, toolchains) = (started.image.clone(), started.toolchains.clone());
    let layers = match (&started.agent, role) {
        (Some(agent), SandboxRole::Work) => host.agent(agent, &started.backend)?.layer.into_iter().collect(),
        _ => Vec::new(),
    };
    Ok(SandboxSpec { name, labels, image, resources, toolchains, layers, ..SandboxSpec::default() })
}

/// Creates a fresh sandbox that contains exactly one commit.
pub(crate) async fn fresh_sandbox(
    host: &HostContext,
    bare: &BareRepo,
    scratch: &Path,
    started: &RunStart,
    sha: &str,
    role: SandboxRole,
) -> Result<Arc<dyn Sandbox>, Error> {
    let backend = host.backend(&started.backend)?;
    let name = sandbox_name(&*backend, started, role).await?;
    // A proof is granted nothing, but the same rules apply to it, including those about single requests.
    let availability = match role {
        SandboxRole::Baseline => EgressAvailability::Always,
        SandboxRole::Work | SandboxRole::Proof => EgressAvailability::AsNeeded,
    };
    let egress =
        EgressRequest { availability, alarm_after: started.alarm_after, ..EgressRequest::from(started.policy.clone()) };
    let spec = sandbox_spec(host, started, name, role)?;
    let request = SandboxRequest { backend: &*backend, spec, egress: Some(egress) };
    let sandbox = sandbox_lifecycle::create(host, request).await?.into_sandbox();
    if let Err(error) = seed_commit(&*sandbox, bare, scratch, started, sha).await {
        sandbox_lifecycle::discard(&*sandbox).await;
        return Err(error);
    }
    Ok(sandbox)
}

async fn seed_commit(
    sandbox: &dyn Sandbox,
    bare: &BareRepo,
    scratch: &Path,
    started: &RunStart,
    sha: &str,
) -> Result<(), Error> {
    let keep = if started.commit_state { StateFiles::Committed } else { StateFiles::Excluded };
    Ok(git::seed_sandbox(sandbox, bare, scratch, &started.branch, sha, &started.identity, keep).await?)
}
