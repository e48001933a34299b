//! `ralph verify`: runs the proof of a receipt again and compares.

use std::path::Path;

use ralph_core::exit_code::RalphExitCode;
use ralph_core::gate_or_checkbox::CheckTarget;
use ralph_core::receipt::{Receipt, RerunResult};
use ralph_core::text::head;
use ralph_engine::host_environment::DEFAULT_BACKEND;
use ralph_engine::receipt::SigningKey;
use ralph_engine::verify::{ReceiptSigner, ReceiptTrust, find_receipt, verify as again};

use super::run::warn_if_not_isolated;
use crate::args::VerifyArgs;
use crate::error::{CliError, CliResult};
use crate::render::align_columns;
use crate::run_setup::CliSetup;
use crate::terminal_output::{GREEN, RED, Ui, YELLOW, one_line, paint};

pub(crate) async fn verify(setup: &CliSetup, args: &VerifyArgs, ui: &mut Ui) -> CliResult {
    let here = Path::new(".");
    let receipt = find_receipt(&setup.host, &args.what, here).await?;
    if let Some(key) = args.key.as_deref().filter(|key| !key.eq_ignore_ascii_case(&receipt.key)) {
        let found = one_line(&receipt.key, 64);
        return Err(CliError::new(
            RalphExitCode::Failed,
            format!("the receipt is signed by `{found}`, not by `{}`", one_line(key, 64)),
        )
        .hint("get the receipt again from a source you trust"));
    }
    let backend = args.backend.as_deref().unwrap_or(DEFAULT_BACKEND);
    let isolation = setup.host.backend(backend)?.capabilities();
    if !ui.json() {
        print_receipt(&receipt, ui);
    }
    if args.backend.is_none() && !isolation.isolation.is_isolated() && !is_own_receipt(setup, &receipt)? {
        // The commands come from someone else, and without isolation nothing would protect this machine from them.
        return Err(CliError::usage(
            "the receipt was made elsewhere, and its commands would run here without isolation",
        )
        .hint(format!("read them, then: ralph verify {} --backend {backend}", args.what)));
    }
    warn_if_not_isolated(&isolation, ui);
    let trust = if args.key.is_some() { ReceiptTrust::Trusted } else { ReceiptTrust::Unknown };
    let report = again(&setup.host, receipt, backend, here, trust).await?;
    let key = &report.receipt.key;
    let known = args.key.is_some() || report.signed_by == ReceiptSigner::ThisInstallation;
    let exit = match (report.flaw, known) {
        (Some(_), _) => RalphExitCode::Failed,
        // A signature proves only which key signed: the user has to decide once whether to trust that key.
        (None, false) => RalphExitCode::Paused,
        (None, true) => RalphExitCode::Success,
    };
    if ui.json() {
        ui.print_json(&report);
        return Ok(exit);
    }
    let by = match (report.signed_by, &args.key) {
        (ReceiptSigner::ThisInstallation, _) => "this installation",
        (ReceiptSigner::Another, Some(_)) => "the key you named",
        (ReceiptSigner::Another, None) => "a key this installation does not know",
    };
    ui.print_message(&format!("signature holds; signed by {by} ({}…)", head(key, 16)));
    let rows: Vec<Vec<String>> = report
        .lines
        .iter()
        .map(|line| {
            let verdict = match line.verdict {
                RerunResult::Same => paint(GREEN, "same"),
                RerunResult::Different => paint(RED, "different"),
                RerunResult::Cannot => paint(YELLOW, "cannot"),
            };
            let now = line.now.map_or_else(|| "-".to_owned(), |code| code.to_string());
            vec![
                verdict,
                format!("exit {} then, {now} now", line.then),
                CheckTarget::join(&line.proves, " "),
                one_line(&line.command, 80),
            ]
        })
        .collect();
    for line in align_columns(&rows) {
        ui.print_data(&line);
    }
    for line in &report.lines {
        if let Some(reason) = &line.reason {
            ui.print_message(&format!("`{}` printed last:", one_line(&line.command, 80)));
            for said in reason.lines() {
                ui.print_message(&format!("  {said}"));
            }
        }
    }
    if !report.changed_programs.is_empty() {
        let paths: Vec<String> = report.changed_programs.iter().take(5).map(|path| one_line(path, 80)).collect();
        ui.print_message(&format!("programs that are not the ones of the proof: {}", paths.join(", ")));
    }
    if trust == ReceiptTrust::Unknown && report.signed_by == ReceiptSigner::Another {
        ui.print_message("the checks had no network: only with `--key` are the hosts of such a receipt reached");
    }
    match (report.flaw, known) {
        (Some(why), _) => ui.print_message(&format!("not proved: {why}")),
        (None, false) => {
            ui.print_message("proved again, but this installation does not know the signer");
            ui.print_message(&format!(
                "next: ralph verify {} --key {key}, if you trust the owner of that key",
                args.what
            ));
        }
        (None, true) => ui.print_message("proved again"),
    }
    Ok(exit)
}

fn print_receipt(receipt: &Receipt, ui: &mut Ui) {
    let body = &receipt.body;
    let branch = one_line(&body.branch, 100);
    ui.print_message(&format!("receipt of run {} for {branch} at {}", one_line(&body.run, 40), head(&body.commit, 12)));
    for check in &body.checks {
        ui.print_message(&format!("  {}: {}", CheckTarget::join(&check.proves, " "), one_line(&check.command, 120)));
    }
}

fn is_own_receipt(setup: &CliSetup, receipt: &Receipt) -> Result<bool, CliError> {
    let path = setup.host.home.key_path();
    Ok(path.exists() && SigningKey::load_or_create(&path)?.public() == receipt.key)
}
