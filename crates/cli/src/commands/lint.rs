//! `ralph lint`: what is wrong with a task, before a token is spent.

use ralph_core::exit::Exit;
use ralph_core::lint::{Finding, fix, has_errors};
use ralph_engine::run::baseline_of;
use serde_json::json;

use super::run::{no_task, not_ready, warn_of};
use crate::args::Lint;
use crate::error::Outcome;
use crate::render::findings;
use crate::setup::{Flags, Setup};
use crate::ui::{GREEN, Ui, paint};

pub(crate) async fn lint(setup: &Setup, args: &Lint, ui: &mut Ui) -> Outcome {
    let flags = Flags { backend: args.backend.clone(), ..Flags::default() };
    let mut read = setup.read(args.task.as_deref()).await?;
    if read.source.is_none() && !ui.json() {
        return Err(no_task());
    }
    let mut found = setup.lint(&read, &flags).await?;
    if args.fix
        && let Some(source) = &read.source
    {
        let fixed = fix(source, &found);
        if fixed != *source {
            let path = args.task.clone().unwrap_or_else(|| read.repo.top().join(crate::setup::TASK_FILE));
            ralph_engine::store::write_atomic(&path, fixed.as_bytes())?;
            read.source = Some(fixed);
            let left = setup.lint(&read, &flags).await?;
            let mended = match found.len().saturating_sub(left.len()) {
                1 => "1 finding was mended".to_owned(),
                n => format!("{n} findings were mended"),
            };
            ui.say(&format!("{mended} in {}", path.display()));
            found = left;
        }
    }
    if args.baseline && !has_errors(&found) {
        let wish = setup.begin(&read, &flags)?;
        warn_of(&setup.host.backend(&wish.backend)?.capabilities(), ui);
        found.extend(baseline_of(&setup.host, &wish).await?);
    }
    tell(&read.source.clone().unwrap_or_default(), &read.shown, &found, ui);
    if has_errors(&found) {
        if ui.json() {
            return Ok(Exit::Usage);
        }
        return Err(not_ready(&read, &found, ui.json()));
    }
    Ok(Exit::Success)
}

fn tell(source: &str, shown: &std::path::Path, found: &[Finding], ui: &mut Ui) {
    if ui.json() {
        let rows: Vec<_> = found
            .iter()
            .map(|finding| {
                let place = finding.span.map(|span| span.line_column(source));
                json!({"rule": finding.rule, "severity": finding.severity, "span": finding.span,
                    "line": place.map(|(line, _)| line), "column": place.map(|(_, column)| column),
                    "message": finding.message, "fix": finding.fix})
            })
            .collect();
        ui.object(&json!({"format": 1, "file": shown, "findings": rows}));
        return;
    }
    findings::tell(found, source, shown, ui);
    if found.is_empty() {
        ui.say(&format!("{} {} is ready to run", paint(GREEN, "✓"), shown.display()));
    }
}
