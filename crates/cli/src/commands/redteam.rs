//! `ralph redteam`: runs the attack suite against a sandbox of this machine; every denial is paired with a positive
//! control.

use std::time::Instant;

use ralph_core::exit_code::RalphExitCode;
use ralph_engine::host_environment::DEFAULT_BACKEND;
use ralph_redteam::{AttackReport, AttackRequest, AttackVerdict, run_suites, selects_any};
use serde_json::json;

use crate::args::RedteamArgs;
use crate::commands::run::warn_if_not_isolated;
use crate::error::{CliError, CliResult};
use crate::run_setup::CliSetup;
use crate::terminal_output::{GREEN, RED, Ui, YELLOW, paint};

pub(crate) async fn redteam(setup: &CliSetup, args: &RedteamArgs, ui: &mut Ui) -> CliResult {
    let name = args.backend.as_deref().unwrap_or(DEFAULT_BACKEND);
    let backend = setup.host.backend(name)?;
    warn_if_not_isolated(&backend.capabilities(), ui);
    let only = args.only.as_deref();
    if let Some(only) = only
        && !selects_any(only)
    {
        return Err(CliError::usage(format!("no case matches `{only}`"))
            .hint("use an area (FS, PR, KS, NE, DN, PC, RX, PE, PF), a case like FS-01, or `KS-04*`"));
    }
    let began = Instant::now();
    let quiet = ui.json();
    let mut print_case = |case: &AttackReport| {
        if !quiet && (args.verbose || !matches!(case.verdict, AttackVerdict::Held)) {
            let style = match case.verdict {
                AttackVerdict::Held => GREEN,
                AttackVerdict::Escaped(_) | AttackVerdict::Invalid(_) => RED,
                AttackVerdict::Skipped(_) => YELLOW,
            };
            ui.print_data(&paint(style, &case.to_string()));
        } else if !quiet {
            ui.set_status(&format!("▸ {} {}", case.id, case.name));
        }
    };
    let request = AttackRequest {
        backend: &*backend,
        dir: setup.host.home.state_dir().join("redteam"),
        search_path: setup.host.env.get("PATH").unwrap_or("").into(),
        only,
    };
    let Some(report) = run_suites(&request, &mut print_case).await else {
        return Err(CliError::new(RalphExitCode::NotReady, "the attack suite needs a Linux kernel"));
    };
    ui.clear_status();
    let (escaped, invalid) = (report.escaped().count(), report.invalid().count());
    let skipped = report.skipped().count();
    let held = report.cases.len() - escaped - invalid - skipped;
    let seconds = began.elapsed().as_secs_f32();
    if ui.json() {
        ui.print_json(&json!({"format": 1, "backend": name, "held": report.held(), "seconds": seconds,
            "cases": report.cases}));
    } else {
        ui.print_data(&format!(
            "{} attacks on {name}: {held} held, {escaped} escaped, {invalid} invalid, {skipped} skipped ({seconds:.0} s)",
            report.cases.len()
        ));
    }
    Ok(if report.held() { RalphExitCode::Success } else { RalphExitCode::Failed })
}
