//! Rewinds a run to the commit where an iteration ended.

use ralph_core::commit_sha::CommitSha;
use ralph_core::event::{Event, EventLine, EventLogLevel};
use ralph_core::run::{RunSandbox, RunState, RunStatus};

use super::interrupts::StopSignals;
use super::runner::Runner;
use super::sandbox_setup::SandboxSetup;
use super::unsettled_calls::UnsettledCalls;
use super::work_sandbox::KeepSandbox;
use crate::error::Error;
use crate::git::{RunName, Sha};
use crate::host_environment::HostContext;
use crate::store::{EventObserver, RunFolder, read_events};

/// Rewinds a run that is not being driven to the commit of iteration `n`, or with 0 to its start. The boxes that were
/// verified there are verified again, and are proved once more when it goes on.
pub async fn rewind(
    host: &HostContext,
    folder: RunFolder,
    n: u32,
    announce: Box<dyn EventObserver>,
) -> Result<String, Error> {
    let run = folder.id();
    workplace(&folder.state()?, &run, n)?;
    let mut runner = Runner::open(host.clone(), folder, announce, StopSignals::default(), KeepSandbox::Always).await?;
    // Checked again under the lock: another process may have changed the run until now.
    let state = runner.run.state().clone();
    let place = workplace(&state, &run, n)?;
    let name = RunName::parse(&run)?;
    let found = match n {
        0 => Some(Sha::from(&place.start)),
        _ => runner.run.bare.iteration_commit(&name, n).await?,
    };
    let Some(sha) = found else {
        return Err(Error::CannotRewind { run, n, why: "no commit was imported in that iteration" });
    };
    let started = state.started.clone();
    // What was verified there; boxes that were verified later are not.
    let reclaim = match state_after(&runner.run.folder, n)? {
        Some(then) => then.boxes_to_reprove().into_iter().filter(|id| has_same_proofs(&then, &state, id)).collect(),
        None => Vec::new(),
    };
    let active = state.status.clone();
    runner.run.log(EventLogLevel::Info, format!("a person went back to iteration {n}, commit {sha}"))?;
    let sha = CommitSha::from(&sha);
    UnsettledCalls { run: &mut runner.run, models: &mut runner.models }.record_unread_answer()?;
    SandboxSetup { run: &mut runner.run, work: &mut runner.work, models: &runner.models }
        .create(&started, &place.start, &sha, reclaim)
        .await?;
    // Rewinding does not resume a paused run.
    if let RunStatus::Paused { reason, next } = active {
        runner.run.append(Event::Paused { reason, next })?;
    } else {
        runner.run.pause(ralph_core::event::RunStopReason::Asked)?;
    }
    runner.close().await?;
    Ok(sha.into())
}

/// Returns the state of the run when an iteration ended, or the last one before it that did.
fn state_after(folder: &RunFolder, n: u32) -> Result<Option<RunState>, Error> {
    let mut lines = read_events(&folder.events_path(), &folder.id())?;
    let ended = |line: &EventLine| matches!(line.event, Event::IterationFinished { n: ended, .. } if ended <= n);
    let Some(last) = lines.iter().rposition(ended) else { return Ok(None) };
    lines.truncate(last + 1);
    let run = folder.id();
    RunState::from_events(lines).map(Some).map_err(|source| Error::BadHistory { run, source })
}

/// Returns whether a box is proved by the same commands in both states: the task may have been edited in between.
fn has_same_proofs(then: &RunState, now: &RunState, id: &str) -> bool {
    let proofs = |state: &RunState| {
        state.started.boxes.iter().find(|pinned| pinned.id == id).map(|pinned| pinned.proofs.clone())
    };
    proofs(then).is_some() && proofs(then) == proofs(now)
}

/// Returns the sandbox of a run, if the run can be rewound.
fn workplace(state: &RunState, run: &str, n: u32) -> Result<RunSandbox, Error> {
    let refused = |why: &'static str| Error::CannotRewind { run: run.to_owned(), n, why };
    if state.status == RunStatus::Succeeded {
        // Its proof is published; further changes are the work of a new run.
        return Err(refused("it has succeeded"));
    }
    state.workplace.clone().ok_or_else(|| refused("it has no sandbox yet"))
}
