//! `ralph gutter explain`: explains the loop score of each iteration, from the events alone.

use ralph_core::exit_code::RalphExitCode;
use ralph_core::gutter::{self, GUTTER_THRESHOLD, LadderRung, ScoreExplanation};
use ralph_engine::store::read_events;
use serde_json::json;

use crate::args::stuck_run::{GutterCommand, GutterExplainArgs};
use crate::error::{CliError, CliResult};
use crate::run_setup::CliSetup;
use crate::terminal_output::{BOLD, DIM, GREEN, RED, Ui, one_line, paint};

pub(crate) fn gutter(setup: &CliSetup, args: &GutterCommand, ui: &mut Ui) -> CliResult {
    match args {
        GutterCommand::Explain(args) => explain(setup, args, ui),
    }
}

fn explain(setup: &CliSetup, args: &GutterExplainArgs, ui: &mut Ui) -> CliResult {
    let folder = setup.find_run(&args.run)?;
    let id = folder.id();
    let lines = read_events(&folder.events_path(), &id)?;
    let mut explained = gutter::explain(lines)
        .map_err(|source| CliError::from(ralph_engine::Error::BadHistory { run: id.clone(), source }))?;
    if let Some(n) = args.iteration {
        explained.retain(|one| one.n == n);
        if explained.is_empty() {
            return Err(CliError::usage(format!("iteration {n} of run {id} was not scored"))
                .hint(format!("ralph gutter explain {id} shows all that were")));
        }
    }
    if ui.json() {
        ui.print_json(&json!({"format": 1, "run": id, "threshold": GUTTER_THRESHOLD, "iterations": explained}));
        return Ok(RalphExitCode::Success);
    }
    if explained.is_empty() {
        ui.print_message(&format!("no iteration of run {id} was scored so far; ralph logs {id} shows what happened"));
        return Ok(RalphExitCode::Success);
    }
    for (at, one) in explained.iter().enumerate() {
        if at > 0 {
            ui.print_data("");
        }
        for line in explanation_lines(one) {
            ui.print_data(&line);
        }
    }
    Ok(RalphExitCode::Success)
}

fn explanation_lines(one: &ScoreExplanation) -> Vec<String> {
    let verdict = if one.gutter { paint(RED, "gutter") } else { paint(GREEN, "not gutter") };
    let mut out = vec![format!("{} {:.2}, {verdict}", paint(BOLD, &format!("iteration {}", one.n)), one.score.total)];
    for part in &one.parts {
        let value = if part.counts { part.weight } else { 0.0 };
        let line = format!("  {} {value:.1}  {}", part.letter, one_line(&part.why, 200));
        out.push(if part.counts { line } else { paint(DIM, &line) });
    }
    if one.parts.is_empty() {
        out.extend(one.score.evidence.iter().map(|line| format!("  {}", one_line(line, 200))));
        return out;
    }
    let sum = one.parts.iter().map(|part| format!("{:.1}", if part.counts { part.weight } else { 0.0 }));
    let sum = format!("{} = {:.1}", sum.collect::<Vec<_>>().join(" + "), one.sum);
    out.push(match &one.score.veto {
        Some(veto) if one.score.total < one.sum => {
            format!("  {sum}, at most {:.1} because of progress: {}", one.score.total, one_line(veto, 100))
        }
        Some(veto) => format!("  {sum}; progress: {}", one_line(veto, 100)),
        None => format!("  {sum}; {GUTTER_THRESHOLD} and more is gutter"),
    });
    if let Some(rung) = one.rung {
        let profile = one.profile.as_deref().unwrap_or_default();
        let what = match rung {
            LadderRung::Rotate => "a fresh session with the reason in its prompt".to_owned(),
            LadderRung::Fallback => format!("the fallback profile {profile}"),
            LadderRung::Diagnose => "a diagnosis".to_owned(),
            LadderRung::Pause => "it waits for a person".to_owned(),
            LadderRung::GiveUp => "nothing was left to try".to_owned(),
        };
        out.push(format!("  verdict {} without progress → {}: {what}", one.streak, rung.as_str()));
    }
    out
}
