//! `ralph diagnose` and `ralph apply`: a doctor's opinion on a run, and what it proposes.

use ralph_core::control::Control;
use ralph_core::diagnosis::Book;
use ralph_core::event::Event;
use ralph_core::exit::Exit;
use ralph_core::run::State;
use ralph_engine::control::ask;
use ralph_engine::run::{at_rest, proposals};
use ralph_engine::store::{Folder, read_events};
use serde_json::json;

use super::steer::patiently;
use crate::args::stuck::Apply;
use crate::error::{Failure, Outcome};
use crate::live::Wake;
use crate::setup::Setup;
use crate::ui::{DIM, GREEN, Ui, one_line, paint};

pub(crate) async fn diagnose(setup: &Setup, run: &str, ui: &mut Ui) -> Outcome {
    let folder = setup.own(run)?;
    let id = folder.id();
    let before = folder.state()?.diagnoses.written;
    let live = folder.in_use();
    if live {
        patiently(ask(&folder, &Control::Diagnose, "a person"), ui).await?;
    } else {
        let announce = Box::new(Wake::default());
        at_rest(&setup.host, folder.clone(), Control::Diagnose, "a person", announce).await?;
    }
    let state = folder.state()?;
    let made = state.diagnoses.written > before;
    if made && let Some(why) = failed(&folder)? {
        return Err(Failure::new(Exit::Failed, format!("there is no diagnosis of run {id}: {why}"))
            .hint(format!("ralph profile test, then: ralph diagnose {id}")));
    }
    if ui.json() {
        let book = proposals(&folder)?;
        ui.object(&json!({
            "format": 1, "run": id, "control": "diagnose", "written": made, "proposals": listed(&book, &state),
        }));
        return Ok(Exit::Success);
    }
    if !made {
        ui.say(&if live {
            format!("run {id} is diagnosed when the iteration under way has ended")
        } else {
            format!("run {id} rests in the middle of an iteration and is diagnosed at its end: ralph resume {id}")
        });
        return Ok(Exit::Success);
    }
    tell(&folder, &state, ui)
}

/// Returns why the last diagnosis came to nothing, if it did.
fn failed(folder: &Folder) -> Result<Option<String>, Failure> {
    let lines = read_events(&folder.events_path(), &folder.id())?;
    let last = lines.into_iter().rev().find_map(|line| match line.event {
        Event::DiagnosisWritten { failed, .. } => Some(failed),
        _ => None,
    });
    Ok(last.flatten().map(|why| one_line(&why, 300)))
}

pub(crate) async fn apply(setup: &Setup, args: &Apply, ui: &mut Ui) -> Outcome {
    if let Some(number) = args.number {
        return super::steer::steer(setup, &args.run, Control::ApplyProposal { number }, ui).await;
    }
    let folder = setup.own(&args.run)?;
    let state = folder.state()?;
    if ui.json() {
        let book = proposals(&folder)?;
        ui.object(&json!({"format": 1, "run": folder.id(), "proposals": listed(&book, &state)}));
        return Ok(Exit::Success);
    }
    tell(&folder, &state, ui)
}

fn tell(folder: &Folder, state: &State, ui: &mut Ui) -> Outcome {
    let id = folder.id();
    let book = proposals(folder)?;
    let told = listed(&book, state);
    if told.is_empty() {
        let last = folder.read(&folder.mirror("diagnostics.md"))?.unwrap_or_default();
        let last = String::from_utf8_lossy(&last).into_owned();
        let why = last.lines().rev().find_map(|line| line.strip_prefix("No diagnosis: ")).map(|why| one_line(why, 300));
        match why {
            Some(why) if state.diagnoses.written > 0 => ui.say(&format!("there is no diagnosis of run {id}: {why}")),
            _ => ui.say(&format!("nothing was proposed for run {id} yet; ralph diagnose {id} asks for a diagnosis")),
        }
        return Ok(Exit::Success);
    }
    for one in &told {
        let (number, applied) = (one["number"].as_u64().unwrap_or(0), one["applied"] == true);
        let words = one_line(one["words"].as_str().unwrap_or_default(), 200);
        let state = if applied { paint(GREEN, "applied") } else { paint(DIM, "open") };
        ui.data(&format!("{number}  {state}  {words}"));
    }
    if let Some(first) = state.diagnoses.open().next() {
        ui.say(&format!("next: ralph apply {id} {first} carries one out, ralph resume {id} goes on"));
    }
    Ok(Exit::Success)
}

/// The proposals that an event speaks of, with what became of each.
fn listed(book: &Book, state: &State) -> Vec<serde_json::Value> {
    let told = book.proposals.iter().filter(|one| one.number <= state.diagnoses.proposals);
    told.map(|one| {
        let mut value = serde_json::to_value(one).unwrap_or_default();
        value["applied"] = state.diagnoses.applied.contains(&one.number).into();
        value["words"] = one.proposal.words().into();
        value
    })
    .collect()
}
