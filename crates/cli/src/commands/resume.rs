//! `ralph resume`: goes on with a run, here or in the process that holds it.

use ralph_core::control::Control;
use ralph_core::exit::Exit;
use ralph_core::run::Status;
use ralph_engine::control::ask;
use ralph_engine::run::{Keep, Raise, Recreate, Stops, resume as take_up};

use super::run::{detach, drive, warn_of};
use super::steer::patiently;
use crate::args::Resume;
use crate::error::Outcome;
use crate::live::Wake;
use crate::setup::Setup;
use crate::ui::Ui;

pub(crate) async fn resume(setup: &Setup, args: Resume, ui: &mut Ui) -> Outcome {
    let folder = setup.own(&args.run)?;
    let raise = Raise {
        iterations: args.add_iterations,
        minutes: args.add_minutes,
        cost_usd: args.add_cost,
        tokens: args.add_tokens,
    };
    if args.in_background {
        // Out of the terminal's session, so that closing it does not end the run. It fails only for a session leader.
        let _ = rustix::process::setsid();
    }
    if folder.in_use() && !args.in_background {
        if raise != Raise::default() {
            let Raise { iterations, minutes, cost_usd, tokens } = raise;
            let control = Control::RaiseBudget { iterations, minutes, cost_usd, tokens };
            patiently(ask(&folder, &control, "ralph resume"), ui).await?;
        }
        patiently(ask(&folder, &Control::Resume, "ralph resume"), ui).await?;
        ui.say(&format!("run {} goes on in the process that holds it", folder.id()));
        return Ok(Exit::Success);
    }
    let (wake, stops) = (Wake::default(), Stops::default());
    let keep = if args.keep_sandbox { Keep::Always } else { Keep::Never };
    let recreate = if args.recreate { Recreate::Yes } else { Recreate::No };
    let state = folder.state()?;
    let before = state.last_seq;
    if state.status != Status::Succeeded {
        warn_of(&setup.host.backend(&state.started.backend)?.capabilities(), ui);
    }
    let runner =
        take_up(&setup.host, folder.clone(), raise, recreate, Box::new(wake.clone()), stops.clone(), keep).await?;
    if args.detach {
        drop(runner);
        return detach(&folder, keep, ui);
    }
    drive(runner, &wake, stops, before, ui).await
}
