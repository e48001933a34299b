//! Makes the sandbox of a run and puts the branch into it.

use std::collections::BTreeMap;
use std::sync::Arc;

use std::path::Path;

use ralph_core::event::{Event, Level, Started};
use ralph_core::lint::Severity;
use ralph_core::money::Micros;
use ralph_core::name;
use ralph_proxy::ledger::{Caps, Ledger};
use ralph_sandbox::{Backend, Error as SandboxError, Isolation, Label, Network, Resources, Sandbox, Spec};

use super::runner::Runner;
use crate::egress::{self, Doors};
use crate::error::Error;
use crate::git::inside::KeepState;
use crate::git::{self, Bare};
use crate::host::Host;

/// What a sandbox is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Work,
    Proof,
    /// A proof that is not expected to pass yet: what it cannot reach is worth knowing.
    Baseline,
}

impl Role {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Work => "work",
            Self::Proof | Self::Baseline => "proof",
        }
    }
}

impl Runner {
    pub(super) async fn prepare(&mut self) -> Result<(), Error> {
        let started = self.state().started.clone();
        let start = started.start_commit.clone();
        self.move_in(&started, &start, &start, Vec::new()).await
    }

    /// Makes the sandbox anew with the branch at `head`.
    pub(super) async fn move_in(
        &mut self,
        started: &Started,
        start: &str,
        head: &str,
        reclaim: Vec<String>,
    ) -> Result<(), Error> {
        let backend = self.host.backend(&started.backend)?;
        let name = name_for(&*backend, started, Role::Work).await?;
        let lent = self.agree(&name)?;
        let made = make(&self.host, &*backend, started, name, Role::Work).await?;
        let sandbox = lent.put_in(&backend.capabilities(), made).await?;
        put_commit_in(&*sandbox, &self.bare, self.folder.path(), started, head).await?;
        self.files.start(&*sandbox).await?;
        self.survey = None;
        self.sandbox = Some(sandbox.clone());
        self.events.append(Event::SandboxReady {
            sandbox: sandbox.id().to_owned(),
            backend: started.backend.clone(),
            isolated: backend.capabilities().isolation != Isolation::None,
            start: start.to_owned(),
            head: head.to_owned(),
            reclaim,
        })
    }

    pub(super) async fn baseline(&mut self) -> Result<(), Error> {
        let mut started = self.state().started.clone();
        started.policy = self.state().policy().clone();
        let sha = started.start_commit.clone();
        let report = crate::baseline::check(&self.host, &self.bare, self.folder.path(), &started, &sha).await?;
        let refused = report.findings.iter().find(|finding| finding.severity == Severity::Error);
        let refused = refused.map(|error| error.message.clone());
        self.raise_alarm(report.seen.clone())?;
        self.events.append(Event::BaselineChecked { checks: report.lines(), refused })?;
        for finding in report.findings.iter().filter(|finding| finding.severity == Severity::Warning) {
            self.log(Level::Warn, finding.message.clone())?;
        }
        Ok(())
    }

    /// Removes sandboxes for proofs that a dead process left behind; this run has none under way. What stays is removed
    /// when the next one of its name is made.
    pub(super) async fn discard_proofs(&self) {
        let Ok(backend) = self.host.backend(&self.state().started.backend) else { return };
        for other in backend.list().await.unwrap_or_default() {
            let of = |label: &str, value: &str| other.labels.get(label).is_some_and(|found| found == value);
            if of(Label::RUN, self.state().id())
                && of(Label::ROLE, Role::Proof.word())
                && let Ok(sandbox) = backend.open(&other.id).await
            {
                discard(&*sandbox).await;
            }
        }
    }
}

/// Returns the name of a run's sandbox; one of that name that a dead process left behind is removed.
async fn name_for(backend: &dyn Backend, started: &Started, role: Role) -> Result<String, Error> {
    let listed = backend.list().await?;
    let foreign = |wanted: &str| {
        listed.iter().any(|other| other.id == wanted && other.labels.get(Label::RUN) != Some(&started.run))
    };
    let agent = match role {
        Role::Work => started.engine.clone(),
        Role::Proof | Role::Baseline => format!("{}-proof", started.engine),
    };
    let name = name::sandbox(&agent, &started.branch, &foreign);
    if listed.iter().any(|other| other.id == name) {
        backend.open(&name).await?.destroy().await?;
    }
    Ok(name)
}

/// Makes a sandbox for a run.
async fn make(
    host: &Host,
    backend: &dyn Backend,
    started: &Started,
    name: String,
    role: Role,
) -> Result<Arc<dyn Sandbox>, Error> {
    let mut labels = BTreeMap::from([
        (Label::RUN.to_owned(), started.run.clone()),
        (Label::ROLE.to_owned(), role.word().to_owned()),
        (Label::REPO.to_owned(), started.repo.clone()),
        ("ralph.branch".to_owned(), started.branch.clone()),
        ("ralph.base".to_owned(), started.base_commit.clone()),
        ("ralph.base-branch".to_owned(), started.base_branch.clone()),
        ("ralph.task".to_owned(), started.task_path.clone()),
    ]);
    let network = match egress::network(&started.policy, &mut labels) {
        // A person may allow something later, and until then the refusals are worth knowing. A proof needs no such door.
        Network::None if role != Role::Proof && backend.capabilities().network_policy => Network::Transparent,
        network => network,
    };
    let asked = started.resources;
    let resources = Resources { memory: asked.memory, cpus: asked.cpus, disk: asked.disk, pids: asked.pids };
    let (image, toolchains) = (started.image.clone(), started.toolchains.clone());
    let layers = match (&started.agent, role) {
        (Some(agent), Role::Work) => host.agent(agent, &started.backend)?.layer.into_iter().collect(),
        _ => Vec::new(),
    };
    let spec = Spec { name, labels, env: BTreeMap::new(), image, resources, network, toolchains, layers };
    Ok(backend.create(&spec).await?)
}

/// Makes a fresh sandbox that holds exactly one commit.
pub(crate) async fn fresh(
    host: &Host,
    bare: &Bare,
    scratch: &Path,
    started: &Started,
    sha: &str,
    role: Role,
) -> Result<Arc<dyn Sandbox>, Error> {
    let backend = host.backend(&started.backend)?;
    let name = name_for(&*backend, started, role).await?;
    // A proof is lent nothing, but held to the same rules, those about single requests among them.
    let nothing = Ledger::new(Caps::default(), Micros::ZERO, 0);
    let doors = if role == Role::Baseline { Doors::Always } else { Doors::AsNeeded };
    let lent =
        egress::lend(host, &name, started.policy.clone(), &[], &[], nothing, doors)?.with_alarm(started.alarm_after);
    #[cfg(target_os = "linux")]
    let pass = host.egress().agree(&name, lent.terms.clone());
    let made = make(host, &*backend, started, name, role).await?;
    #[cfg(target_os = "linux")]
    let put_in = lent.put_in_with(&backend.capabilities(), Arc::clone(&made), pass).await;
    #[cfg(not(target_os = "linux"))]
    let put_in = lent.put_in(&backend.capabilities(), Arc::clone(&made)).await;
    let sandbox = match put_in {
        Ok(sandbox) => sandbox,
        Err(error) => {
            discard(&*made).await;
            return Err(error);
        }
    };
    if let Err(error) = put_commit_in(&*sandbox, bare, scratch, started, sha).await {
        discard(&*sandbox).await;
        return Err(error);
    }
    Ok(sandbox)
}

async fn put_commit_in(
    sandbox: &dyn Sandbox,
    bare: &Bare,
    scratch: &Path,
    started: &Started,
    sha: &str,
) -> Result<(), Error> {
    let keep = if started.commit_state { KeepState::In } else { KeepState::Out };
    Ok(git::put_in(sandbox, bare, scratch, &started.branch, sha, &started.identity, keep).await?)
}

/// Removes a sandbox that served its purpose; what stays is removed when the next one of its name is made.
pub(crate) async fn discard(sandbox: &dyn Sandbox) {
    match sandbox.destroy().await {
        Ok(()) | Err(SandboxError::Gone { .. }) => (),
        Err(error) => tracing::warn!(%error, sandbox = sandbox.id(), "a sandbox could not be removed"),
    }
}
