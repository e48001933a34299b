//! `ralph audit`: checks whether the audit log of a run can be relied on.

use std::time::Duration;

use ralph_core::audit::{AuditFault, AuditVerification};
use ralph_core::exit_code::RalphExitCode;
use ralph_engine::audit;
use ralph_engine::store::RunFolder;
use serde_json::json;

use crate::args::AuditCommand;
use crate::error::{CliError, CliResult};
use crate::run_setup::CliSetup;
use crate::terminal_output::Ui;

/// How many times a line that is still being written is read again.
const VERIFY_ATTEMPTS: u32 = 20;

pub(crate) async fn audit(setup: &CliSetup, args: &AuditCommand, ui: &mut Ui) -> CliResult {
    match args {
        AuditCommand::Verify(args) => verify(&setup.find_audit_folder(&args.run)?, ui).await,
    }
}

async fn verify(folder: &RunFolder, ui: &mut Ui) -> CliResult {
    let run = folder.id();
    match verify_with_retry(folder).await? {
        Ok(report) => {
            print_report(&run, &report, ui);
            Ok(RalphExitCode::Success)
        }
        Err(fault) if ui.json() => {
            let fault_json = json!({"line": fault.line(), "what": fault.as_str(), "why": fault.to_string(),
                "hint": fault.hint(&run)});
            ui.print_json(&json!({"format": 1, "run": run, "sound": false, "fault": fault_json}));
            Ok(RalphExitCode::Failed)
        }
        Err(fault) => {
            let mut failure =
                CliError::new(RalphExitCode::Failed, format!("the audit log of run `{run}` cannot be relied on"))
                    .with_cause(&fault);
            failure.hint = fault.hint(&run);
            failure.log = Some(audit::path(folder).display().to_string());
            Err(failure)
        }
    }
}

/// Verifies the audit log, and again after a pause when the last line is cut: a live run may be in the middle of
/// writing it.
async fn verify_with_retry(folder: &RunFolder) -> Result<Result<AuditVerification, AuditFault>, CliError> {
    for _ in 0..VERIFY_ATTEMPTS {
        match audit::verify(folder)? {
            Err(AuditFault::Torn { .. }) if folder.is_live() => tokio::time::sleep(Duration::from_millis(20)).await,
            verified => return Ok(verified),
        }
    }
    Ok(audit::verify(folder)?)
}

fn print_report(run: &str, report: &AuditVerification, ui: &mut Ui) {
    let AuditVerification { head, anchor, damaged, skipped } = report;
    let unanchored = report.unanchored();
    if ui.json() {
        let anchored = anchor.as_ref().map(|anchor| json!({"event": anchor.event, "lines": anchor.head.lines}));
        ui.print_json(&json!({"format": 1, "run": run, "sound": true, "lines": head.lines, "head": head.hash,
            "anchored": anchored, "unanchored": unanchored, "damaged": damaged, "skipped": skipped}));
        return;
    }
    let anchored = match anchor {
        Some(anchor) => format!("anchored at event {}", anchor.event),
        None => "not anchored".to_owned(),
    };
    ui.print_data(&format!("{}, head {}, {anchored}", pluralize(head.lines, "line"), head.hash));
    if unanchored > 0 {
        ui.print_message(&format!(
            "{} came after the last anchor: the end is not anchored yet",
            pluralize(unanchored, "line")
        ));
    }
    if *damaged > 0 {
        ui.print_message(&format!(
            "{} of it cut off by a crash or a full disk, and marked",
            pluralize(*damaged, "place")
        ));
    }
    if *skipped > 0 {
        ui.print_message(&format!("{} only counted, not written one by one", pluralize(*skipped, "record")));
    }
}

fn pluralize(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}
