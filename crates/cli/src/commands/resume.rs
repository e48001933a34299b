//! `ralph resume`: continues a run, in this process or in the process that already works on it.

use ralph_core::control_request::Control;
use ralph_core::exit_code::RalphExitCode;
use ralph_core::run::RunStatus;
use ralph_engine::run::{BudgetRaise, KeepSandbox, RecreateSandbox, StopSignals, resume as take_up};

use super::run::{detach, drive, warn_if_not_isolated};
use super::send_control::send_with_notice;
use crate::args::ResumeArgs;
use crate::error::CliResult;
use crate::foreground::DisplayNotifier;
use crate::run_setup::CliSetup;
use crate::terminal_output::Ui;

pub(crate) async fn resume(setup: &CliSetup, args: ResumeArgs, ui: &mut Ui) -> CliResult {
    let folder = setup.find_run_to_change(&args.run)?;
    let mut raise = BudgetRaise {
        iterations: args.add_iterations,
        minutes: args.add_minutes,
        cost_usd: args.add_cost,
        tokens: args.add_tokens,
    };
    if args.in_background {
        // A new session, so that closing the terminal does not end the run. This fails only for a session leader.
        let _ = rustix::process::setsid();
    }
    if folder.is_live() && !args.in_background {
        let mut live = true;
        if raise != BudgetRaise::default() {
            let BudgetRaise { iterations, minutes, cost_usd, tokens } = raise;
            let control = Control::RaiseBudget { iterations, minutes, cost_usd, tokens };
            live = send_with_notice(setup, &folder, &control, "ralph resume", ui).await?.live;
            // Recorded, whoever applied it: it must not be added once more below.
            raise = BudgetRaise::default();
        }
        if live {
            match send_with_notice(setup, &folder, &Control::Resume, "ralph resume", ui).await {
                Ok(_) => {
                    ui.print_message(&format!("run {} continues in the process that holds it", folder.id()));
                    return Ok(RalphExitCode::Success);
                }
                // That process was about to leave the run: it is resumed here instead.
                Err(ralph_engine::Error::NotRunning { .. }) => (),
                Err(error) => return Err(error.into()),
            }
        }
    }
    let (wake, stops) = (DisplayNotifier::default(), StopSignals::default());
    let keep = if args.keep_sandbox { KeepSandbox::Always } else { KeepSandbox::Never };
    let recreate = if args.recreate { RecreateSandbox::Yes } else { RecreateSandbox::No };
    let state = folder.state()?;
    let before = state.last_seq;
    if state.status != RunStatus::Succeeded {
        warn_if_not_isolated(&setup.host.backend(&state.started.backend)?.capabilities(), ui);
    }
    let runner =
        take_up(&setup.host, folder.clone(), raise, recreate, Box::new(wake.clone()), stops.clone(), keep).await?;
    if args.detach {
        runner.close().await?;
        return detach(&folder, keep, ui);
    }
    drive(runner, &wake, stops, before, ui).await
}
