//! `ralph pause|rotate|stop|note|guardrail|set-profile|apply|edit-task`: sends a control to a run, live or at rest.

use std::time::Duration;

use ralph_core::control_request::Control;
use ralph_core::exit_code::RalphExitCode;
use ralph_engine::control::{ControlAck, send};
use ralph_engine::store::RunFolder;

use crate::error::{CliError, CliResult};
use crate::run_setup::CliSetup;
use crate::terminal_output::Ui;

pub(crate) async fn steer(setup: &CliSetup, run: &str, control: Control, ui: &mut Ui) -> CliResult {
    if let Control::Note { text } | Control::Guardrail { text } = &control
        && text.trim().is_empty()
    {
        return Err(CliError::usage("there is nothing to tell the model")
            .hint(format!("ralph {} {run} \"what it should know\"", control.kind())));
    }
    let folder = setup.find_run_to_change(run)?;
    let id = folder.id();
    let ack = send_with_notice(setup, &folder, &control, "a person", ui).await?;
    if ack.live && control == Control::Stop {
        wait_until_stopped(&folder).await;
    }
    let kind = control.kind();
    let done = match &control {
        Control::Pause => "is paused",
        Control::Stop => "is stopped; its commits are kept",
        Control::Rotate { .. } => "starts its next iteration with a fresh session",
        Control::Note { .. } => "has your note",
        Control::Guardrail { .. } => "has your sign",
        Control::SetProfile { name } => &format!("continues with profile {name}"),
        Control::ApplyProposal { number } => &format!("has proposal {number}; if it rests, next: ralph resume {id}"),
        Control::EditTask(_) => "has its new task; the old text is kept in its folder",
        _ => "received the control",
    };
    if ui.json() {
        ui.print_json(&serde_json::json!({"format": 1, "run": id, "control": kind}));
    } else {
        ui.print_message(&format!("run {id} {done}"));
    }
    Ok(RalphExitCode::Success)
}

/// Waits until a stopped run has written its final state, so that the next command sees it.
async fn wait_until_stopped(folder: &RunFolder) {
    const STOP_TIMEOUT: Duration = Duration::from_mins(1);
    let until = tokio::time::Instant::now() + STOP_TIMEOUT;
    while tokio::time::Instant::now() < until
        && (folder.is_live() || folder.state().is_ok_and(|state| state.status.is_active()))
    {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Sends a control to a run. A live run answers between two actions; if that takes long, prints what it waits for.
pub(crate) async fn send_with_notice(
    setup: &CliSetup,
    folder: &RunFolder,
    control: &Control,
    by: &str,
    ui: &mut Ui,
) -> Result<ControlAck, ralph_engine::Error> {
    let live = folder.is_live();
    let mut answer = Box::pin(send(&setup.host, folder, control, by));
    if live {
        tokio::select! {
            answered = &mut answer => return answered,
            () = tokio::time::sleep(Duration::from_secs(2)) => (),
        }
        ui.print_message("waiting for the action under way to end");
    }
    answer.await
}
