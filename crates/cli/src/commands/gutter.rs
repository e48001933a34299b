//! `ralph gutter explain`: why each iteration was scored as it was, told from the events alone.

use ralph_core::exit::Exit;
use ralph_core::gutter::{self, Explained, GUTTER, Rung};
use ralph_engine::store::read_events;
use serde_json::json;

use crate::args::stuck::{Explain, Gutter};
use crate::error::{Failure, Outcome};
use crate::setup::Setup;
use crate::ui::{BOLD, DIM, GREEN, RED, Ui, one_line, paint};

pub(crate) fn gutter(setup: &Setup, args: &Gutter, ui: &mut Ui) -> Outcome {
    match args {
        Gutter::Explain(args) => explain(setup, args, ui),
    }
}

fn explain(setup: &Setup, args: &Explain, ui: &mut Ui) -> Outcome {
    let folder = setup.find(&args.run)?;
    let id = folder.id();
    let lines = read_events(&folder.events_path(), &id)?;
    let mut explained = gutter::explain(lines)
        .map_err(|source| Failure::from(ralph_engine::Error::BadHistory { run: id.clone(), source }))?;
    if let Some(n) = args.iteration {
        explained.retain(|one| one.n == n);
        if explained.is_empty() {
            return Err(Failure::usage(format!("iteration {n} of run {id} was not scored"))
                .hint(format!("ralph gutter explain {id} shows all that were")));
        }
    }
    if ui.json() {
        ui.object(&json!({"format": 1, "run": id, "threshold": GUTTER, "iterations": explained}));
        return Ok(Exit::Success);
    }
    if explained.is_empty() {
        ui.say(&format!("no iteration of run {id} was scored so far; ralph logs {id} shows what happened"));
        return Ok(Exit::Success);
    }
    for (at, one) in explained.iter().enumerate() {
        if at > 0 {
            ui.data("");
        }
        for line in told(one) {
            ui.data(&line);
        }
    }
    Ok(Exit::Success)
}

fn told(one: &Explained) -> Vec<String> {
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
        None => format!("  {sum}; {GUTTER} and more is gutter"),
    });
    if let Some(rung) = one.rung {
        let profile = one.profile.as_deref().unwrap_or_default();
        let what = match rung {
            Rung::Rotate => "a fresh session that was told why".to_owned(),
            Rung::Fallback => format!("the fallback profile {profile}"),
            Rung::Diagnose => "a diagnosis".to_owned(),
            Rung::Pause => "it waits for a person".to_owned(),
            Rung::GiveUp => "nothing was left to try".to_owned(),
        };
        out.push(format!("  verdict {} without progress → {}: {what}", one.streak, rung.word()));
    }
    out
}
