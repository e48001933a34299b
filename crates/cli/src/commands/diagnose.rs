//! `ralph diagnose` and `ralph apply`: requests a diagnosis of a run, and lists or applies its proposals.

use ralph_core::control_request::Control;
use ralph_core::diagnosis::ProposalList;
use ralph_core::event::Event;
use ralph_core::exit_code::RalphExitCode;
use ralph_core::run::RunState;
use ralph_engine::run::read_proposals;
use ralph_engine::store::{RunFolder, read_events};
use serde_json::json;

use super::send_control::send_with_notice;
use crate::args::stuck_run::ApplyArgs;
use crate::error::{CliError, CliResult};
use crate::run_setup::CliSetup;
use crate::terminal_output::{DIM, GREEN, Ui, one_line, paint};

pub(crate) async fn diagnose(setup: &CliSetup, run: &str, ui: &mut Ui) -> CliResult {
    let folder = setup.find_run_to_change(run)?;
    let id = folder.id();
    let before = folder.state()?.diagnoses.written;
    let live = send_with_notice(setup, &folder, &Control::Diagnose, "a person", ui).await?.live;
    let state = folder.state()?;
    let made = state.diagnoses.written > before;
    if made && let Some(why) = diagnosis_error(&folder)? {
        return Err(CliError::new(RalphExitCode::Failed, format!("there is no diagnosis of run {id}: {why}"))
            .hint(format!("ralph profile test, then: ralph diagnose {id}")));
    }
    if ui.json() {
        let list = read_proposals(&folder)?;
        ui.print_json(&json!({
            "format": 1, "run": id, "control": "diagnose", "written": made, "proposals": proposals_json(&list, &state),
        }));
        return Ok(RalphExitCode::Success);
    }
    if !made {
        ui.print_message(&if live {
            format!("run {id} is diagnosed when the iteration under way has ended")
        } else {
            format!("run {id} rests in the middle of an iteration and is diagnosed at its end: ralph resume {id}")
        });
        return Ok(RalphExitCode::Success);
    }
    print_proposals(&folder, &state, ui)
}

/// Returns why the last diagnosis failed, if it did.
fn diagnosis_error(folder: &RunFolder) -> Result<Option<String>, CliError> {
    let lines = read_events(&folder.events_path(), &folder.id())?;
    let last = lines.into_iter().rev().find_map(|line| match line.event {
        Event::DiagnosisWritten { failed, .. } => Some(failed),
        _ => None,
    });
    Ok(last.flatten().map(|why| one_line(&why, 300)))
}

pub(crate) async fn apply(setup: &CliSetup, args: &ApplyArgs, ui: &mut Ui) -> CliResult {
    if let Some(number) = args.number {
        return super::send_control::steer(setup, &args.run, Control::ApplyProposal { number }, ui).await;
    }
    let folder = setup.find_run_to_change(&args.run)?;
    let state = folder.state()?;
    if ui.json() {
        let list = read_proposals(&folder)?;
        ui.print_json(&json!({"format": 1, "run": folder.id(), "proposals": proposals_json(&list, &state)}));
        return Ok(RalphExitCode::Success);
    }
    print_proposals(&folder, &state, ui)
}

fn print_proposals(folder: &RunFolder, state: &RunState, ui: &mut Ui) -> CliResult {
    let id = folder.id();
    let list = read_proposals(folder)?;
    let rows = proposals_json(&list, state);
    if rows.is_empty() {
        let last = folder.read(&folder.mirror("diagnostics.md"))?.unwrap_or_default();
        let last = String::from_utf8_lossy(&last).into_owned();
        let why = last.lines().rev().find_map(|line| line.strip_prefix("No diagnosis: ")).map(|why| one_line(why, 300));
        match why {
            Some(why) if state.diagnoses.written > 0 => {
                ui.print_message(&format!("there is no diagnosis of run {id}: {why}"));
            }
            _ => ui.print_message(&format!(
                "nothing was proposed for run {id} yet; ralph diagnose {id} asks for a diagnosis"
            )),
        }
        return Ok(RalphExitCode::Success);
    }
    for one in &rows {
        let (number, applied) = (one["number"].as_u64().unwrap_or(0), one["applied"] == true);
        let words = one_line(one["words"].as_str().unwrap_or_default(), 200);
        let state = if applied { paint(GREEN, "applied") } else { paint(DIM, "open") };
        ui.print_data(&format!("{number}  {state}  {words}"));
    }
    if let Some(first) = state.diagnoses.open_proposals().next() {
        ui.print_message(&format!("next: ralph apply {id} {first} applies one, ralph resume {id} continues"));
    }
    Ok(RalphExitCode::Success)
}

/// Returns the proposals that events refer to, with the state of each.
fn proposals_json(list: &ProposalList, state: &RunState) -> Vec<serde_json::Value> {
    let known = list.proposals.iter().filter(|one| one.number <= state.diagnoses.proposals);
    known
        .map(|one| {
            let mut value = serde_json::to_value(one).unwrap_or_default();
            value["applied"] = state.diagnoses.applied.contains(&one.number).into();
            value["words"] = one.proposal.describe().into();
            value
        })
        .collect()
}
