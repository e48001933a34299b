//! `ralph redteam`: the attack suite against a sandbox of this machine, every denial with a control.

#[cfg(not(target_os = "linux"))]
pub(crate) async fn redteam(
    _: &crate::setup::CliSetup,
    _: &crate::args::RedteamArgs,
    _: &mut crate::ui::Ui,
) -> crate::error::CliResult {
    Err(crate::error::CliError::new(ralph_core::exit::RalphExitCode::NotReady, "the attack suite needs a Linux kernel"))
}

#[cfg(target_os = "linux")]
pub(crate) use linux::redteam;

#[cfg(target_os = "linux")]
mod linux {
    use std::time::Instant;

    use ralph_core::exit::RalphExitCode;
    use ralph_engine::host::DEFAULT_BACKEND;
    use ralph_redteam::cage::{self, RedteamTarget};
    use ralph_redteam::egress::{self, EgressTarget};
    use ralph_redteam::{AttackReport, AttackVerdict};
    use ralph_sandbox::embedded::EmbeddedOptions;
    use serde_json::json;

    use crate::args::RedteamArgs;
    use crate::commands::run::warn_if_not_isolated;
    use crate::error::{CliError, CliResult};
    use crate::setup::CliSetup;
    use crate::ui::{GREEN, RED, Ui, YELLOW, paint};

    pub(crate) async fn redteam(setup: &CliSetup, args: &RedteamArgs, ui: &mut Ui) -> CliResult {
        let name = args.backend.as_deref().unwrap_or(DEFAULT_BACKEND);
        let backend = setup.host.backend(name)?;
        warn_if_not_isolated(&backend.capabilities(), ui);
        if let Some(only) = &args.only
            && !cage::cases().any(|case| case.is_selected(only))
            && !egress::cases().any(|case| case.is_selected(only))
        {
            return Err(CliError::usage(format!("no case is meant by `{only}`"))
                .hint("use an area (FS, PR, KS, NE, DN, PC, RX, PE), a case like FS-01, or `KS-04*`"));
        }
        let dir = setup.host.home.state_dir().join("redteam");
        let target = match name {
            "embedded" => RedteamTarget::Cage(EmbeddedOptions { dir, ..EmbeddedOptions::default() }),
            _ => RedteamTarget::Other(&*backend),
        };
        let began = Instant::now();
        let quiet = ui.json();
        let mut tell = |case: &AttackReport| {
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
        let only = args.only.as_deref();
        let mut report = cage::run(&target, only, &mut tell).await;
        if name == "embedded" {
            let search_path = setup.host.env.get("PATH").unwrap_or("").into();
            let target = EgressTarget { program: None, search_path };
            egress::run(&target, only, &mut report, &mut tell).await;
        } else {
            egress::skip(
                "only the doors of cages can lead to a world of the suite's own",
                only,
                &mut report,
                &mut tell,
            );
        }
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
}
