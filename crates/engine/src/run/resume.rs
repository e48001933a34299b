//! Resumes a run from its folder and its sandbox alone.

use ralph_core::control_request::Control;
use ralph_core::decide_next_step::{self, RunStep};
use ralph_core::event::{Event, RunVerdict};
use ralph_core::run::{RunState, RunStatus};
use ralph_sandbox::Error as SandboxError;

use super::egress::egress_request;
use super::interrupts::StopSignals;
use super::iteration_close_checkpoint::CloseCheckpoint;
use super::proposals::ProposalStep;
use super::runner::Runner;
use super::sandbox_setup::SandboxSetup;
use super::unsettled_calls::UnsettledCalls;
use super::work_sandbox::KeepSandbox;
use crate::error::Error;
use crate::git::in_sandbox;
use crate::host_environment::HostContext;
use crate::sandbox_lifecycle;
use crate::store::{EventObserver, RunFolder};

/// What a resume adds to the budgets of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct BudgetRaise {
    pub iterations: u32,
    pub minutes: u64,
    pub cost_usd: f64,
    pub tokens: u64,
}

/// What to do when the sandbox is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecreateSandbox {
    No,
    Yes,
}

/// Opens a run that is paused or ended, or whose process died.
pub async fn resume(
    host: &HostContext,
    folder: RunFolder,
    raise: BudgetRaise,
    recreate: RecreateSandbox,
    announce: Box<dyn EventObserver>,
    stops: StopSignals,
    keep: KeepSandbox,
) -> Result<Runner, Error> {
    let run = folder.id();
    check_resumable(&folder.state()?, &run)?;
    let mut runner = Runner::open(host.clone(), folder, announce, stops, keep).await?;
    // Checked again under the lock: another process may have changed the run until now.
    let state = runner.run.state().clone();
    check_resumable(&state, &run)?;
    if let (false, Some(open)) = (state.status.is_active(), &state.open) {
        CloseCheckpoint::invalidate(&runner.run.folder, open.n)?;
    }
    if let Some(place) = state.workplace.clone() {
        let backend = host.backend(&place.backend)?;
        let egress = match recreate {
            RecreateSandbox::No => Some(egress_request(runner.run.state(), &runner.models.ledger)?),
            // Only its existence is checked: nothing runs in it.
            RecreateSandbox::Yes => None,
        };
        match (sandbox_lifecycle::open(host, &*backend, &place.sandbox, egress).await, recreate) {
            (Ok(granted), RecreateSandbox::No) => {
                let sandbox = runner.work.hold_grant(granted);
                in_sandbox::remove_stale_locks(&*sandbox).await?;
                runner.work.sandbox = Some(sandbox);
            }
            // The user asked for it: the old sandbox is replaced, and commits that were never imported are lost with
            // it.
            (Ok(_) | Err(Error::Sandbox(SandboxError::Gone { .. })), RecreateSandbox::Yes) => {
                UnsettledCalls { run: &mut runner.run, models: &mut runner.models }.record_unread_answer()?;
                append_resumed(&mut runner, raise)?;
                let head = state.imported.clone().unwrap_or_else(|| place.start.clone());
                let reclaim = state.boxes_to_reprove();
                SandboxSetup { run: &mut runner.run, work: &mut runner.work, models: &runner.models }
                    .create(&state.started, &place.start, &head, reclaim)
                    .await?;
                return Ok(runner);
            }
            // Everything is imported and proved: the sandbox was removed just before the last event.
            (Err(Error::Sandbox(SandboxError::Gone { .. })), RecreateSandbox::No) if is_proved(&state) => (),
            (Err(Error::Sandbox(SandboxError::Gone { .. })), RecreateSandbox::No) => {
                let why = format!("its sandbox `{}` is gone", place.sandbox);
                return Err(Error::CannotResume { hint: format!("ralph resume --recreate {run}"), run, why });
            }
            (Err(error), _) => return Err(error),
        }
    }
    if state.task_revision > 1 && state.open.is_none() {
        // The process that edited the task may have died before writing it into the sandbox. Without this the old
        // text there would count as a change by the model.
        ProposalStep { run: &mut runner.run, work: &mut runner.work }.write_task_to_sandbox().await?;
    }
    append_resumed(&mut runner, raise)?;
    Ok(runner)
}

fn check_resumable(state: &RunState, run: &str) -> Result<(), Error> {
    if state.status == RunStatus::Succeeded {
        let (why, hint) = ("it has succeeded".to_owned(), format!("ralph diff {run}"));
        return Err(Error::CannotResume { run: run.to_owned(), why, hint });
    }
    // A run whose process died before it recorded the refusal may go on and record it.
    if let (false, Some(why)) = (state.status.is_active(), state.baseline_blocker()) {
        return Err(Error::BaselineRefused { run: run.to_owned(), why: why.to_owned() });
    }
    check_priced(state, run)
}

/// Refuses to continue with a profile whose calls no cap would limit. Older versions started such runs.
fn check_priced(state: &RunState, run: &str) -> Result<(), Error> {
    let profiles = &state.started.profiles;
    let holds = |name: &&str| profiles.get(name).is_none_or(|profile| state.budget.can_enforce(profile.price.as_ref()));
    if holds(&state.profile.as_str()) {
        return Ok(());
    }
    let hint = match profiles.names().into_iter().find(holds) {
        Some(other) => format!("ralph set-profile {run} {other}, then ralph resume {run}"),
        None => "start a new run with a token cap: ralph run --max-tokens 2000000".to_owned(),
    };
    let why = Error::Unpriced { profile: state.profile.clone() }.to_string();
    Err(Error::CannotResume { run: run.to_owned(), why, hint })
}

/// Says whether only the event of the run's success is missing.
fn is_proved(state: &RunState) -> bool {
    let going_on = RunState { status: RunStatus::Running, ..state.clone() };
    decide_next_step::decide(&going_on) == RunStep::Finish { verdict: RunVerdict::Succeeded }
}

/// Records the raised budgets and the resume. Only called once the run can go on, so that a refused resume that is
/// repeated does not raise twice.
fn append_resumed(runner: &mut Runner, raise: BudgetRaise) -> Result<(), Error> {
    let by = "ralph resume".to_owned();
    if raise != BudgetRaise::default() {
        let BudgetRaise { iterations, minutes, cost_usd, tokens } = raise;
        let control = Control::RaiseBudget { iterations, minutes, cost_usd, tokens };
        runner.run.append(Event::ControlApplied { control, by: by.clone(), id: None })?;
    }
    runner.run.append(Event::Resumed { by })
}
