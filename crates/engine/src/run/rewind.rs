//! Back to where an iteration ended.

use ralph_core::event::{Event, Level};
use ralph_core::run::Status;

use super::runner::{Keep, Runner, Stops};
use crate::error::Error;
use crate::git::{RunName, Sha};
use crate::host::Host;
use crate::store::{Announce, Folder};

/// Puts a resting run back to the commit that iteration `n` handed over, or with 0 to its start; its boxes are proved again when it goes on.
pub async fn rewind(host: &Host, folder: Folder, n: u32, announce: Box<dyn Announce>) -> Result<String, Error> {
    let state = folder.state()?;
    let run = folder.id();
    if state.status == Status::Succeeded {
        // Its proof is published; what should be different now is the work of a new run.
        return Err(Error::CannotRewind { run, n, why: "it has succeeded" });
    }
    let Some(place) = state.workplace.clone() else {
        return Err(Error::CannotRewind { run, n, why: "it has no sandbox yet" });
    };
    let mut runner = Runner::take(host.clone(), folder, announce, Stops::default(), Keep::Always).await?;
    let name = RunName::parse(&run)?;
    let found = match n {
        0 => Some(Sha::parse(&place.start)?),
        _ => runner.bare.shadow_at(&name, n).await?,
    };
    let Some(sha) = found else {
        return Err(Error::CannotRewind { run, n, why: "that iteration handed over no commit" });
    };
    let started = state.started.clone();
    let reclaim = state.held();
    let active = state.status.clone();
    runner.log(Level::Info, format!("a person went back to iteration {n}, commit {sha}"))?;
    let sha = sha.to_string();
    runner.move_in(&started, &place.start, &sha, reclaim).await?;
    // Going back does not start a run that rests.
    if let Status::Paused { reason, next } = active {
        runner.events.append(Event::Paused { reason, next })?;
    } else {
        runner.pause(ralph_core::event::Reason::Asked)?;
    }
    Ok(sha)
}
