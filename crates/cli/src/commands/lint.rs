//! `ralph lint`: reports what is wrong with a task before a token is spent.

use ralph_core::event::BaselineVerdict;
use ralph_core::exit_code::RalphExitCode;
use ralph_core::lint::{LintFinding, fix, has_errors};
use ralph_engine::BaselineRow;
use ralph_engine::run::run_baseline;
use ralph_engine::setup::{SetupError, TASK_FILE, check_startable, lint_task, resolve_run, task_errors};
use ralph_web::view::baseline_words;
use serde_json::json;

use super::run::warn_if_not_isolated;
use crate::args::LintArgs;
use crate::error::CliResult;
use crate::render::{align_columns, findings};
use crate::run_setup::CliSetup;
use crate::terminal_output::{GREEN, Ui, YELLOW, one_line, paint};

pub(crate) async fn lint(setup: &CliSetup, args: &LintArgs, ui: &mut Ui) -> CliResult {
    let flags = args.overrides.to_overrides();
    let mut read = setup.load_task(args.task.as_deref()).await?;
    if read.source.is_none() && !ui.json() {
        return Err(SetupError::NoTask.into());
    }
    let mut found = lint_task(&setup.host, &read, &flags).await?;
    if args.fix
        && let Some(source) = &read.source
    {
        let fixed = fix(source, &found);
        if fixed != *source {
            let path = args.task.clone().unwrap_or_else(|| read.repo.top().join(TASK_FILE));
            ralph_engine::store::write_atomic(&path, fixed.as_bytes())?;
            read.source = Some(fixed);
            let left = lint_task(&setup.host, &read, &flags).await?;
            let fixed = match found.len().saturating_sub(left.len()) {
                1 => "1 finding was fixed".to_owned(),
                n => format!("{n} findings were fixed"),
            };
            ui.print_message(&format!("{fixed} in {}", path.display()));
            found = left;
        }
    }
    if !has_errors(&found)
        && read.source.is_some()
        && let Some(missing) = check_startable(&setup.host, &read, &flags).await?
    {
        ui.print_message(&format!("{} a run could not begin here: {missing}", paint(YELLOW, "!")));
    }
    let mut baseline = Vec::new();
    if args.baseline && !has_errors(&found) {
        let spec = resolve_run(&setup.host, &read, &flags)?;
        warn_if_not_isolated(&setup.host.backend(&spec.backend)?.capabilities(), ui);
        let report = run_baseline(&setup.host, &spec).await?;
        found.extend(report.findings.iter().cloned());
        baseline = report.rows();
    }
    print_findings(&read.source.clone().unwrap_or_default(), &read.display_path, &found, &baseline, ui);
    if has_errors(&found) {
        if ui.json() {
            return Ok(RalphExitCode::Usage);
        }
        return Err(task_errors(&read, &found).into());
    }
    Ok(RalphExitCode::Success)
}

fn print_findings(source: &str, shown: &std::path::Path, found: &[LintFinding], baseline: &[BaselineRow], ui: &mut Ui) {
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
        let mut report = json!({"format": 1, "file": shown, "findings": rows});
        if !baseline.is_empty() {
            report["baseline"] = json!(baseline);
        }
        ui.print_json(&report);
        return;
    }
    let rows: Vec<Vec<String>> = baseline
        .iter()
        .map(|row| {
            let result = match row.verdict {
                BaselineVerdict::Red => paint(GREEN, "fails"),
                verdict => paint(YELLOW, baseline_words(verdict)),
            };
            vec![
                result,
                row.proves.join(" "),
                format!("{} ms", row.duration_ms),
                one_line(&row.command, 60),
                one_line(&row.line, 100),
            ]
        })
        .collect();
    for line in align_columns(&rows) {
        ui.print_data(&line);
    }
    findings::print_findings(found, source, shown, ui);
    if found.is_empty() {
        ui.print_message(&format!("{} {} is ready to run", paint(GREEN, "✓"), shown.display()));
    }
}
