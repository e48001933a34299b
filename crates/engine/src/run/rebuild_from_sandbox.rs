//! Rebuilds a run whose folder is gone from its sandbox.
//!
//! The agent can have written anything into the sandbox's files, so they can only be to the run's disadvantage: budgets
//! come from the task on the base commit, boxes are proved again, and what the metrics say was spent counts as spent.

use std::fs;
use std::path::Path;

use ralph_core::event::{CarriedUsage, Event, EventLogLevel, RunStart};
use ralph_core::identifiers::{RunId, TaskBranch};
use ralph_core::money::MicroUsd;
use ralph_core::task;
use ralph_sandbox::{Sandbox, SandboxLabel};
use serde::Deserialize;

use super::begin::{RunRefs, RunSpec, check_priced};
use super::interrupts::StopSignals;
use super::proposals::ProposalStep;
use super::runner::Runner;
use super::work_sandbox::KeepSandbox;
use crate::error::{Error, file_error};
use crate::git::{self, BareRepo, Sha, UserRepo, in_sandbox};
use crate::host_environment::HostContext;
use crate::sandbox_lifecycle;
use crate::store::{EventObserver, write_atomic};

#[derive(Debug, Deserialize)]
struct AdoptedMetrics {
    iteration: u32,
    cost_micros: u64,
    tokens: u64,
}

/// Where a sandbox comes from, by its labels on the host, which nothing inside can change.
#[derive(Debug, Clone)]
pub struct SandboxOrigin {
    pub run: String,
    pub repo: String,
    pub task_path: String,
    pub base: String,
    pub base_branch: String,
    pub branch: TaskBranch,
    pub backend: String,
}

/// Reads the labels of a sandbox.
pub async fn sandbox_origin(host: &HostContext, backend: &str, sandbox: &str) -> Result<SandboxOrigin, Error> {
    let found = host.backend(backend)?.list().await?.into_iter().find(|listed| listed.id == sandbox);
    let Some(listed) = found else {
        return Err(Error::Sandbox(ralph_sandbox::Error::Gone { id: sandbox.to_owned() }));
    };
    let label = |name: &str| {
        listed.labels.get(name).cloned().ok_or_else(|| {
            Error::Refused(format!("sandbox `{sandbox}` has no label `{name}`: it was not made for a run"))
        })
    };
    Ok(SandboxOrigin {
        run: label(SandboxLabel::RUN)?,
        repo: label(SandboxLabel::REPO)?,
        task_path: label("ralph.task")?,
        base: label("ralph.base")?,
        base_branch: label("ralph.base-branch")?,
        branch: TaskBranch::parse(&label("ralph.branch")?).map_err(|error| Error::Refused(error.to_string()))?,
        backend: backend.to_owned(),
    })
}

/// Rebuilds the run folder of a sandbox that still exists.
pub async fn adopt(
    host: &HostContext,
    origin: SandboxOrigin,
    sandbox: &str,
    spec: RunSpec,
    announce: Box<dyn EventObserver>,
) -> Result<Runner, Error> {
    if RunId::parse(&origin.run).is_err() {
        return Err(Error::Refused(format!("`{}` is not the id of a run", origin.run)));
    }
    let folder = host.home.run_folder(&origin.run);
    if folder.events_path().exists() {
        let why = "it still has its folder, so there is nothing to rebuild".to_owned();
        return Err(Error::CannotAdopt { why, hint: format!("ralph resume {}", origin.run), run: origin.run });
    }
    check_priced(&spec)?;
    let backend = host.backend(&origin.backend)?;
    let place = sandbox_lifecycle::open(host, &*backend, sandbox, None).await?.sandbox;
    in_sandbox::remove_stale_locks(&*place).await?;
    fs::create_dir_all(folder.path()).map_err(file_error("make the run folder", folder.path()))?;
    let repo = UserRepo::find(&host.git, Path::new(&origin.repo)).await?;
    let base = Sha::parse(&origin.base)?;
    let bare = BareRepo::create(&host.git, &folder.bare_path(), repo.format()).await?;
    bare.seed_from(&repo, &base).await?;
    write_atomic(&folder.task_path(), spec.source.as_bytes())?;
    // The commit that added the task file counts as part of the work: from here the two cannot be told apart.
    let places = RunRefs {
        repo: repo.top().display().to_string(),
        run: &origin.run,
        base: &base,
        base_branch: &origin.base_branch,
        start: &base,
        branch: &origin.branch,
    };
    let carried = read_carried(&*place).await;
    let started = RunStart {
        recovered: true,
        carried,
        baseline: false,
        ..super::begin::started_event(&spec, &bare, places).await?
    };
    bare.set_branch(&origin.branch, &base).await?;
    let n = started.carried.iterations;
    let redactor = host.redactor();
    let never = std::future::pending();
    let taken = git::import_from_sandbox(&*place, &bare, folder.path(), &started, n, &base, None, &redactor, never);
    let taken = taken.await?.expect("nothing aborts this import");
    if let Some(stop) = taken.findings.iter().find(|finding| finding.stop) {
        return Err(Error::Refused(format!("the work in sandbox `{sandbox}` cannot be taken over: {}", stop.detail)));
    }
    let Some(head) = taken.sha else {
        return Err(Error::Refused(format!("sandbox `{sandbox}` holds no commit that can be taken over")));
    };
    let mut runner = Runner::open(host.clone(), folder, announce, StopSignals::default(), KeepSandbox::Always).await?;
    runner.run.append(Event::RunStarted(Box::new(started.clone())))?;
    runner.work.sandbox = Some(place.clone());
    runner.run.files.recover(&*place).await?;
    let spent = started.carried.cost;
    runner.run.log(
        EventLogLevel::Warn,
        format!("recovered from sandbox `{sandbox}`: {n} iterations, {spent} spent; every box is proved again"),
    )?;
    runner.run.append(Event::SandboxReady {
        sandbox: sandbox.to_owned(),
        backend: origin.backend,
        isolated: backend.capabilities().isolation.is_isolated(),
        start: (&base).into(),
        head: (&head).into(),
        reclaim: ticked_boxes(&*place, &started.task_path).await,
        verified: Vec::new(),
    })?;
    // Nothing is verified yet, so nothing is ticked: otherwise the ticks would count as a change by the model.
    ProposalStep { run: &mut runner.run, work: &mut runner.work }.write_task_to_sandbox().await?;
    runner.run.pause(ralph_core::event::RunStopReason::Asked)?;
    Ok(runner)
}

async fn read_carried(sandbox: &dyn Sandbox) -> CarriedUsage {
    let mut carried = CarriedUsage::default();
    let entries = sandbox.list(Path::new(".ralph/iterations")).await.unwrap_or_default();
    for entry in entries {
        let path = Path::new(".ralph/iterations").join(&entry.name).join("metrics.json");
        let Ok(bytes) = sandbox.read(&path, 1 << 20).await else { continue };
        let Ok(metrics) = serde_json::from_slice::<AdoptedMetrics>(&bytes) else { continue };
        carried.iterations = carried.iterations.max(metrics.iteration);
        carried.cost = carried.cost.max(MicroUsd(metrics.cost_micros));
        carried.tokens = carried.tokens.max(metrics.tokens);
    }
    carried
}

/// Returns the boxes that are ticked in the sandbox's copy of the task. They count as claims, not as verified.
async fn ticked_boxes(sandbox: &dyn Sandbox, path: &str) -> Vec<String> {
    let Ok(bytes) = sandbox.read(Path::new(path), 4 << 20).await else { return Vec::new() };
    let Ok(task) = task::parse(&String::from_utf8_lossy(&bytes)) else { return Vec::new() };
    task.boxes.into_iter().filter(|checkbox| checkbox.done).map(|checkbox| checkbox.id).collect()
}
