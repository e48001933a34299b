//! Going on with a run from its folder and its sandbox alone.

use ralph_core::control::Control;
use ralph_core::decide::{self, Step};
use ralph_core::event::{Event, Verdict};
use ralph_core::run::{State, Status};
use ralph_sandbox::Error as SandboxError;

use super::closing::Closing;
use super::runner::{Keep, Runner, Stops};
use crate::error::Error;
use crate::git::inside;
use crate::host::Host;
use crate::store::{Announce, Folder};

/// What is added to the budgets of a run that goes on.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Raise {
    pub iterations: u32,
    pub minutes: u64,
    pub cost_usd: f64,
    pub tokens: u64,
}

/// What to do when the sandbox is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recreate {
    No,
    Yes,
}

/// Takes hold of a run that rests or whose process died.
pub async fn resume(
    host: &Host,
    folder: Folder,
    raise: Raise,
    recreate: Recreate,
    announce: Box<dyn Announce>,
    stops: Stops,
    keep: Keep,
) -> Result<Runner, Error> {
    let run = folder.id();
    may_go_on(&folder.state()?, &run)?;
    let mut runner = Runner::take(host.clone(), folder, announce, stops, keep).await?;
    // Looked at again: nobody else writes from here on, and somebody may have until now.
    let state = runner.state().clone();
    may_go_on(&state, &run)?;
    if let (false, Some(open)) = (state.status.active(), &state.open) {
        Closing::reopen(&runner.folder, open.n)?;
    }
    if let Some(place) = state.workplace.clone() {
        let backend = host.backend(&place.backend)?;
        let lent = runner.agree(&place.sandbox)?;
        let opened = backend.open(&place.sandbox).await;
        match (opened, recreate) {
            (Ok(sandbox), Recreate::No) => {
                sandbox.start().await?;
                inside::unlock(&*sandbox).await?;
                runner.sandbox = Some(lent.put_in(&backend.capabilities(), sandbox).await?);
            }
            // Asked for by name: what is left of the old one goes, and with it what was never handed over.
            (Ok(_) | Err(SandboxError::Gone { .. }), Recreate::Yes) => {
                runner.tell_unread()?;
                go_on(&mut runner, raise)?;
                let head = state.imported.clone().unwrap_or_else(|| place.start.clone());
                let reclaim = state.held();
                runner.move_in(&state.started, &place.start, &head, reclaim).await?;
                return Ok(runner);
            }
            // Everything is handed over and proved: the sandbox went just before the run could say so.
            (Err(SandboxError::Gone { .. }), Recreate::No) if proved(&state) => (),
            (Err(SandboxError::Gone { .. }), Recreate::No) => {
                let why = format!("its sandbox `{}` is gone", place.sandbox);
                return Err(Error::CannotResume { hint: format!("ralph resume --recreate {run}"), run, why });
            }
            (Err(error), _) => return Err(error.into()),
        }
    }
    if state.task_revision > 1 && state.open.is_none() {
        // Whoever changed the task may have died before the sandbox had it, and the model would be blamed for the old one.
        runner.show_task().await?;
    }
    go_on(&mut runner, raise)?;
    Ok(runner)
}

fn may_go_on(state: &State, run: &str) -> Result<(), Error> {
    if state.status == Status::Succeeded {
        let (why, hint) = ("it has succeeded".to_owned(), format!("ralph diff {run}"));
        return Err(Error::CannotResume { run: run.to_owned(), why, hint });
    }
    // A run whose process died before it could say so is left to say it.
    if let (false, Some(why)) = (state.status.active(), state.pointless()) {
        return Err(Error::RedFirst { run: run.to_owned(), why: why.to_owned() });
    }
    held(state, run)
}

/// Refuses to go on with a profile whose calls no cap would hold. Such a run was begun by a version that let it.
fn held(state: &State, run: &str) -> Result<(), Error> {
    let profiles = &state.started.profiles;
    let holds = |name: &&str| profiles.get(name).is_none_or(|profile| state.budget.holds(profile.price.as_ref()));
    if holds(&state.profile.as_str()) {
        return Ok(());
    }
    let hint = match profiles.names().into_iter().find(holds) {
        Some(other) => format!("ralph set-profile {run} {other}, then ralph resume {run}"),
        None => "begin anew with a cap of tokens: ralph run --max-tokens 2000000".to_owned(),
    };
    let why = Error::Unpriced { profile: state.profile.clone() }.to_string();
    Err(Error::CannotResume { run: run.to_owned(), why, hint })
}

/// Tells whether all that is left to do is to say that the run succeeded.
fn proved(state: &State) -> bool {
    let going_on = State { status: Status::Running, ..state.clone() };
    decide::next(&going_on) == Step::Finish { verdict: Verdict::Succeeded }
}

/// Raised only once the run can go on: a refused resume that is asked for again must not raise twice.
fn go_on(runner: &mut Runner, raise: Raise) -> Result<(), Error> {
    let by = "ralph resume".to_owned();
    if raise != Raise::default() {
        let Raise { iterations, minutes, cost_usd, tokens } = raise;
        let control = Control::RaiseBudget { iterations, minutes, cost_usd, tokens };
        runner.events.append(Event::ControlApplied { control, by: by.clone() })?;
    }
    runner.events.append(Event::Resumed { by })
}
